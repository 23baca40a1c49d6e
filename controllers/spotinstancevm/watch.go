package spotinstancevm

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// Indices of the caches.
const (
	indexVM   = "spot-instance-vm" // of pods and SpotInstanceJobs
	indexNode = "node"             // of pods
	// indexInstance is that of SpotInstanceVMs by the names of their instances, which are those of their nodes.
	indexInstance = "instance"
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
	return pods, errors.Join(
		reconciling.Index(ctx, pods, &corev1.Pod{}, indexVM, func(pod *corev1.Pod) []string { return []string{vmOfPod(pod).Name} }),
		reconciling.Index(ctx, pods, &corev1.Pod{}, indexNode, func(pod *corev1.Pod) []string { return []string{pod.Spec.NodeName} }),
	)
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

// namesOfInstances are those by which a SpotInstanceVM is found.
func namesOfInstances(vm *spotv1alpha1.SpotInstanceVM) []string {
	var names []string
	for _, entry := range vm.Status.ProvisionedInstances {
		names = append(names, entry.Name)
	}
	return names
}

// vmsOfInstance are requests for the SpotInstanceVM that has an instance of the name, if any.
func (r *Reconciler) vmsOfInstance(ctx context.Context, name string) []reconcile.Request {
	return reconciling.Matching[client.Object](ctx, r, &spotv1alpha1.SpotInstanceVMList{}, nil, client.MatchingFields{indexInstance: name})
}

// vmsOfNamespace are those in a namespace.
func (r *Reconciler) vmsOfNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	return reconciling.Matching[client.Object](ctx, r, &spotv1alpha1.SpotInstanceVMList{}, nil, client.InNamespace(namespace.GetName()))
}

// vmsOfNode are the SpotInstanceVM whose instance a node is, and those of the pods on it. The queue has each once.
func (r *Reconciler) vmsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	requests := r.vmsOfInstance(ctx, node.GetName())
	labels := node.GetLabels()
	if name := labels[spotv1alpha1.LabelSpotInstanceVM]; name != "" {
		requests = append(requests, reconciling.Named(labels[spotv1alpha1.LabelSpotInstanceVMNamespace], name))
	}
	pods, err := reconciling.List[*corev1.Pod](ctx, r.pods, &corev1.PodList{}, client.MatchingFields{indexNode: node.GetName()})
	if err != nil {
		log.FromContext(ctx).Error(err, "Find the pods on a node", "node", node.GetName())
	}
	for _, pod := range pods {
		requests = append(requests, vmOfPod(pod))
	}
	return requests
}

func vmOfPod(pod *corev1.Pod) reconcile.Request {
	return reconciling.Named(pod.Namespace, pod.Labels[spotv1alpha1.LabelSpotInstanceVM])
}

// vmsOfPod are the SpotInstanceVM of a pod, and that whose instance it is on.
func (r *Reconciler) vmsOfPod(ctx context.Context, pod *corev1.Pod) []reconcile.Request {
	requests := []reconcile.Request{vmOfPod(pod)}
	if pod.Spec.NodeName != "" {
		requests = append(requests, r.vmsOfInstance(ctx, pod.Spec.NodeName)...)
	}
	return requests
}

// vmOfJob is the name of the SpotInstanceVM that a job refers to, which may use the job's credentials.
func vmOfJob(job *spotv1alpha1.SpotInstanceJob) []string {
	if ref := job.Spec.SpotInstanceVMRef; ref != nil {
		return []string{ref.Name}
	}
	return nil
}
