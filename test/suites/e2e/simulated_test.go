//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// simulatedOnly keeps all pods but those that are meant off a simulated node.
const simulatedOnly = "e2e.example.com/simulated"

// simulatedNode adds a node that has no kubelet: a machine that a test can lose or fill. The cluster's own scheduler
// and controllers deal with it as with any other.
func simulatedNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "simulated-" + name, Labels: map[string]string{simulatedOnly: name}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: simulatedOnly, Value: name, Effect: corev1.TaintEffectNoSchedule}}},
	}
	require.NoError(t, cluster.Create(t.Context(), node))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = cluster.Delete(ctx, node)
		// No kubelet confirms the end of its pods.
		_ = cluster.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(name), client.GracePeriodSeconds(0))
	})
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10"),
	}
	before := node.DeepCopy()
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}
	require.NoError(t, cluster.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	return node
}

// pin has a job run on a simulated node.
func pin(job *mlv1.TrainingJob, node *corev1.Node, more ...corev1.Toleration) {
	value := node.Labels[simulatedOnly]
	job.Spec.Scheduling = &mlv1.Scheduling{
		NodeSelector: map[string]string{simulatedOnly: value},
		Tolerations:  append(more, corev1.Toleration{Key: simulatedOnly, Operator: corev1.TolerationOpEqual, Value: value}),
	}
}

// runSimulated plays the kubelet of a simulated node, which starts the worker of a job.
func runSimulated(t *testing.T, job *mlv1.TrainingJob) {
	t.Helper()
	eventually(t, "the worker is scheduled", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
		if err != nil || len(pods.Items) == 0 || pods.Items[0].Spec.NodeName == "" {
			return false, err
		}
		pod, before := &pods.Items[0], pods.Items[0].DeepCopy()
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, ptr.To(metav1.Now())
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		for _, container := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: container.Name, Image: container.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			})
		}
		return true, cluster.Status().Patch(ctx, pod, client.MergeFrom(before))
	})
	reaches(t, job, "it runs on the simulated node", inState(mlv1.StateRunning))
}
