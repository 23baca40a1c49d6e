package spotinstancevm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// Indices of the cache of pods.
const (
	indexVM   = "spot-instance-vm"
	indexNode = "node"
)

// newPodCache makes a cache of the pods for which instances may be created, with what is read of them: the manager's own
// cache holds the pods of training jobs only, and not what they request.
func newPodCache(ctx context.Context, mgr ctrl.Manager, namespaces []string) (cache.Cache, error) {
	pods, _, err := child.New(mgr, child.Options{
		Label: spotv1alpha1.LabelSpotInstanceVM, Namespaces: namespaces,
		Kinds: map[client.Object]toolscache.TransformFunc{&corev1.Pod{}: barePod},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the cache of pods: %w", err)
	}
	for field, value := range map[string]func(*corev1.Pod) string{
		indexVM:   func(pod *corev1.Pod) string { return pod.Labels[spotv1alpha1.LabelSpotInstanceVM] },
		indexNode: func(pod *corev1.Pod) string { return pod.Spec.NodeName },
	} {
		err := pods.IndexField(ctx, &corev1.Pod{}, field, func(object client.Object) []string {
			return []string{value(object.(*corev1.Pod))}
		})
		if err != nil {
			return nil, fmt.Errorf("index pods by %s: %w", field, err)
		}
	}
	return pods, nil
}

// barePod strips a pod, before it enters the cache, of all that this package does not read.
func barePod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	bare := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: capacity.Bare(&pod.Spec), Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		bare.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: a.PodAntiAffinity}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			condition.Message = ""
			bare.Status.Conditions = append(bare.Status.Conditions, condition)
		}
	}
	return bare, nil
}
