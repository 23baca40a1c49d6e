//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

// countingJob is a SpotInstanceJob of one replica whose program has its state in memory only, and ends at a number.
func countingJob(ns, name, registry, image string, end int) *spotv1alpha1.SpotInstanceJob {
	program := fmt.Sprintf("%s    if n == %d: break\n", counting, end)
	return &spotv1alpha1.SpotInstanceJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: spotv1alpha1.SpotInstanceJobSpec{
			Replicas: ptr.To[int32](1),
			CheckpointConfig: &spotv1alpha1.CheckpointConfig{
				CheckpointImageRepo: registry + "/e2e/" + ns, CheckpointInterval: metav1.Duration{Duration: time.Hour},
			},
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, SecurityContext: asRoot(),
				TerminationGracePeriodSeconds: ptr.To[int64](1),
				Containers:                    []corev1.Container{{Name: "count", Image: image, Command: []string{"/usr/bin/python3", "-c", program}}},
			}}}},
		},
	}
}

// spotClient is a client that knows the kinds of spot instances.
func spotClient(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, spotv1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.NewWithWatch(cluster.config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

const anyNode = ""

// replicaPod waits for the running pod of the job's replica on a node.
func replicaPod(t *testing.T, job *spotv1alpha1.SpotInstanceJob, node string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, "the replica runs on node "+node, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{spotv1alpha1.LabelSpotInstanceJob: job.Name})
		for i := range pods.Items {
			if (node == anyNode || pods.Items[i].Spec.NodeName == node) && pods.Items[i].Status.Phase == corev1.PodRunning {
				found = &pods.Items[i]
			}
		}
		return found != nil, err
	})
	return found
}

// The whole story: a program that saves nothing is on a machine that gets its notice. It is checkpointed into an image
// within the notice, the machine loses its power, another joins by kubeadm, and the program goes on there to its end.
func TestAProgramThatSavesNothingMovesToAnotherMachine(t *testing.T) {
	registry, ns := checkpointAgentIn(t, "/var/lib/kubelet"), rootNamespace(t)
	spot := spotClient(t)
	vm := types.NamespacedName{Namespace: ns, Name: "gpus"}
	old := newSpotMachine(t, "memory-a", vm)
	job := countingJob(ns, "counts", registry, workerImage(t), 600)
	job.Spec.JobTemplate.Spec.Template.Spec.NodeSelector = map[string]string{spotv1alpha1.LabelSpotInstanceVM: vm.Name}
	require.NoError(t, spot.Create(t.Context(), job))
	t.Cleanup(func() {
		if t.Failed() {
			_ = spot.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(job), job)
			t.Logf("the job: %+v", job.Status)
			dumpAgent(t)
		}
	})
	first := replicaPod(t, job, old.name)
	name, _, before := counts(t, first, 50)
	eventually(t, "the checkpoint agent runs on the machine", agentRunsOn(agentNamespace, old.name))

	noticed := time.Now()
	require.NoError(t, nodenotice.Mark(t.Context(), cluster.Client, old.name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: noticed}))
	power := time.AfterFunc(time.Until(noticed.Add(nodenotice.Grace)), func() { _ = old.command(context.WithoutCancel(t.Context()), "preempt", old.name) })
	t.Cleanup(func() { power.Stop() })
	eventually(t, "the replica has a checkpoint", func(ctx context.Context) (bool, error) {
		err := spot.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.LastCheckpointImage != "", err
	})
	saved := time.Since(noticed)
	assert.Less(t, saved, nodenotice.Grace, "it is stored before the machine is gone")
	fresh := newSpotMachine(t, "memory-b", vm)
	second := replicaPod(t, job, fresh.name)
	resumed := time.Since(noticed)
	again, start, _ := counts(t, second, before)
	t.Logf("stored %s after the notice, going on elsewhere after %s; it had counted to %d and goes on from %d", saved, resumed, before, start)

	assert.Equal(t, name, again, "it is the same process")
	assert.GreaterOrEqual(t, start, before, "nothing is counted twice from before the notice")
	eventually(t, "the job is Succeeded", func(ctx context.Context) (bool, error) {
		err := spot.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.Phase == spotv1alpha1.JobSucceeded, err
	})
	assert.Equal(t, int32(1), job.Status.PreemptionCount)
}

// agentRunsOn says whether a pod of an agent's namespace is ready on a node.
func agentRunsOn(namespace, node string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(namespace))
		for _, pod := range pods.Items {
			for _, condition := range pod.Status.Conditions {
				if pod.Spec.NodeName == node && condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					return true, nil
				}
			}
		}
		return false, err
	}
}
