//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const agentNamespace = "spot-checkpoint-agent"

// agentUsers counts the tests that use the checkpoint agent: the first installs it, the last removes it.
var agentUsers struct {
	sync.Mutex
	count int
}

// checkpointAgent installs the built-in checkpoint agent as an admin does, and returns the registry that it may push to
// over plain HTTP. It skips the test on clusters whose nodes are not known to have CRIU.
func checkpointAgent(t *testing.T) string {
	t.Helper()
	return checkpointAgentIn(t, os.Getenv("E2E_KUBELET_DIR"))
}

// checkpointAgentIn does so for kubelets with another folder, in a test that runs alone.
func checkpointAgentIn(t *testing.T, kubelet string) string {
	t.Helper()
	registry := os.Getenv("E2E_REGISTRY")
	if registry == "" || os.Getenv("E2E_KUBELET_DIR") == "" {
		t.Skip("E2E_REGISTRY (host:port of a registry without credentials) and E2E_KUBELET_DIR are for nodes with CRIU; make e2e sets them on its own node")
	}
	agentUsers.Lock()
	defer agentUsers.Unlock()
	objects := agentObjects(t, registry, kubelet)
	t.Cleanup(func() {
		agentUsers.Lock()
		defer agentUsers.Unlock()
		if t.Failed() {
			dumpAgent(t)
		}
		if agentUsers.count--; agentUsers.count > 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, object := range objects {
			_ = cluster.Delete(ctx, object)
		}
	})
	if agentUsers.count++; agentUsers.count == 1 {
		for _, object := range objects {
			eventually(t, object.GetKind()+" "+object.GetName()+" is applied", func(ctx context.Context) (bool, error) {
				// What the last test deleted may be on its way out still; a namespace would take all that is applied along.
				was := object.DeepCopy()
				if err := cluster.Get(ctx, client.ObjectKeyFromObject(object), was); err == nil && was.GetDeletionTimestamp() != nil {
					return false, nil
				}
				err := cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("e2e"), client.ForceOwnership)
				var status apierrors.APIStatus
				if errors.As(err, &status) {
					return false, nil
				}
				return err == nil, err
			})
		}
	}
	eventually(t, "the checkpoint agent runs on all nodes", func(ctx context.Context) (bool, error) {
		var set appsv1.DaemonSet
		err := cluster.Get(ctx, types.NamespacedName{Namespace: agentNamespace, Name: "spot-checkpoint-agent"}, &set)
		return err == nil && set.Status.ObservedGeneration == set.Generation && set.Status.DesiredNumberScheduled > 0 &&
			set.Status.NumberReady == set.Status.DesiredNumberScheduled, client.IgnoreNotFound(err)
	})
	return registry
}

// agentObjects is config/checkpoint-agent with what a cluster of one's own needs: the image, the kubelet's folder, the
// registry.
func agentObjects(t *testing.T, registry, kubelet string) []*unstructured.Unstructured {
	t.Helper()
	rendered, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", filepath.Join("..", "..", "..", "config", "checkpoint-agent")).Output()
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if object.GetKind() == "DaemonSet" {
			adapt(t, object, registry, kubelet)
		}
		objects = append(objects, object)
	}
	require.NotEmpty(t, objects)
	return objects
}

func adapt(t *testing.T, set *unstructured.Unstructured, registry, kubelet string) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(set.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	agent := containers[0].(map[string]any)
	if image := os.Getenv("IMG"); image != "" {
		agent["image"] = image
	}
	agent["args"] = append(agent["args"].([]any), "--insecure-registry="+registry)
	require.NoError(t, unstructured.SetNestedSlice(set.Object, containers, "spec", "template", "spec", "containers"))
	volumes, _, err := unstructured.NestedSlice(set.Object, "spec", "template", "spec", "volumes")
	require.NoError(t, err)
	for _, volume := range volumes {
		if v := volume.(map[string]any); v["name"] == "checkpoints" {
			v["hostPath"].(map[string]any)["path"] = filepath.Join(kubelet, "checkpoints")
		}
	}
	require.NoError(t, unstructured.SetNestedSlice(set.Object, volumes, "spec", "template", "spec", "volumes"))
}

func dumpAgent(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	var pods corev1.PodList
	_ = cluster.List(ctx, &pods, client.InNamespace(agentNamespace))
	for _, pod := range pods.Items {
		t.Logf("agent %s: %s %+v\n%s", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses, log(ctx, &pod))
	}
}
