package rbac_test

import (
	"context"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// aNodeHasAPrice has the manager read the node that a worker runs on.
func aNodeHasAPrice(w *world) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "priced-", Annotations: map[string]string{mlv1.AnnotationPricePerHour: "3.06"}},
	}
	require.NoError(w.t, w.Create(w.t.Context(), node))
	w.t.Cleanup(func() { require.NoError(w.t, w.Delete(context.WithoutCancel(w.t.Context()), node)) })
	before := node.DeepCopy()
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	require.NoError(w.t, w.Status().Patch(w.t.Context(), node, client.MergeFrom(before))) // others write to nodes too
	job := w.submit(builders.TrainingJob("bert"))
	pods := w.pods(job)
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), pods[0], binding))
	started := metav1.Now()
	w.become(pods[0], corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &started, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: containerStatus(pods[0], corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
	})
	w.awaitJob(job, "charged", func(status *mlv1.TrainingJobStatus) bool { return status.Cost != nil })
}
