package watcher

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// Where and as what the agent is installed.
const (
	operatorNamespace = "spot-training-operator-system"
	account           = "spot-training-operator-node-agent"
)

// admin of the API server that the tests share.
func admin(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(api.Config(t), client.Options{})
	require.NoError(t, err)
	return c
}

var installing sync.Once

// install what config/default installs for the agent, and wait until its policy is in force.
func install(t *testing.T) {
	t.Helper()
	installing.Do(func() {
		c := admin(t)
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}))
		kinds := map[string]int{}
		for _, object := range rendered(t) {
			if object.GetName() == account || object.GetName() == account+"-mark" {
				require.NoError(t, c.Create(t.Context(), object))
				kinds[object.GetKind()]++
			}
		}
		require.Equal(t, map[string]int{
			"ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2,
			"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
		}, kinds)
		node := newNode(t)
		agent := agentClient(t, newNode(t).Name)
		require.Eventually(t, func() bool {
			err := edit(t.Context(), agent, node.Name, func(node *corev1.Node) { node.Labels = map[string]string{"probe": ""} })
			return apierrors.IsInvalid(err) || err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
		}, patience, tick, "the policy is in force")
	})
}

func rendered(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	kubectl := filepath.Join(apiserver.Binaries(), "kubectl")
	output, err := exec.CommandContext(t.Context(), kubectl, "kustomize", filepath.Join(apiserver.Root(), "config", "default")).Output()
	require.NoError(t, err)
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(output)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, object)
	}
}

// newNode that is deleted after the test.
func newNode(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "spot-", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"theirs": "1"},
			Finalizers: []string{"test.example.com/hold"},
		},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.1.0.0/24", ProviderID: "gce://p/z/n",
			Taints: []corev1.Taint{{Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoExecute}},
		},
	}
	c := admin(t)
	require.NoError(t, c.Create(t.Context(), node))
	t.Cleanup(func() {
		assert.NoError(t, edit(context.Background(), c, node.Name, func(node *corev1.Node) { node.Finalizers = nil }))
		assert.NoError(t, client.IgnoreNotFound(c.Delete(context.Background(), node)))
	})
	return node
}

// agentClient has the token that the kubelet gives a pod of the agent's on a node.
func agentClient(t *testing.T, node string) client.Client {
	t.Helper()
	config := apiserver.PodConfig(t, api.Config(t), operatorNamespace, account, node)
	agent, err := client.New(config, client.Options{Mapper: admin(t).RESTMapper()})
	require.NoError(t, err)
	return agent
}

func edit(ctx context.Context, c client.Client, name string, change func(*corev1.Node)) error {
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := node.DeepCopy()
	change(&node)
	return c.Patch(ctx, &node, client.MergeFrom(before))
}
