package rbac_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// aNodeGoes has the manager see that the provider takes a node back, move the job that has a worker there, and look
// afterwards whether the notice still stands.
func aNodeGoes(w *world) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "going-"}}
	require.NoError(w.t, w.Create(w.t.Context(), node))
	w.t.Cleanup(func() { require.NoError(w.t, w.Delete(context.WithoutCancel(w.t.Context()), node)) })
	job := w.starts(builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{Spot: &mlv1.SpotReference{Name: "t4"}}
	}))
	vm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "training.training.dcnlab.com/v1alpha1", "kind": "SpotInstanceVM",
		"metadata": map[string]any{"name": "t4", "namespace": w.namespace},
		"spec": map[string]any{
			"vmImage": "projects/my-project/global/images/node",
			"gcp":     map[string]any{"project": "my-project", "zone": "us-central1-a", "machineType": "n1-standard-4"},
		},
	}}
	require.NoError(w.t, w.Create(w.t.Context(), vm))
	w.awaitJob(job, "aware of its SpotInstanceVM", func(status *mlv1.TrainingJobStatus) bool {
		is := meta.FindStatusCondition(status.Conditions, reasons.ConditionSpotCapacity)
		return is != nil && is.Reason != reasons.SpotInstanceVMNotFound
	})
	first := w.workers(job, "")
	pod := w.pods(job)[0]
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), pod, binding))

	require.NoError(w.t, nodenotice.Mark(w.t.Context(), w.Client, node.Name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: time.Now()}))
	again := metav1.Now()
	w.become(pod, corev1.PodStatus{ // which has the job looked at, should the notice have been seen before the pod was on the node
		Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}, StartTime: &again,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: containerStatus(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
	})
	w.awaitJob(job, "restarted", func(status *mlv1.TrainingJobStatus) bool { return status.RestartCount == 1 })
	require.Equal(w.t, reasons.NodePreempted, job.Status.LastFailure.Reason)
	w.await("the pod being told to leave", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return err != nil || pod.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})

	require.NoError(w.t, nodenotice.Clear(w.t.Context(), w.Client, node.Name, nodenotice.MetadataServer))
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0))))
	w.run(w.pods(job, first.UID)...)
	w.awaitState(job, mlv1.StateRunning)
}
