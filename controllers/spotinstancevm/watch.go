package spotinstancevm

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// indexInstance is the cache index of SpotInstanceVMs by the names of their instances, which are those of their nodes.
const indexInstance = "instance"

// vmsOfInstance are the SpotInstanceVM that has an instance of the name, if any.
func (r *Reconciler) vmsOfInstance(ctx context.Context, name string) []types.NamespacedName {
	var vms spotv1alpha1.SpotInstanceVMList
	err := r.List(ctx, &vms, client.MatchingFields{indexInstance: name}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "List SpotInstanceVMs", "instance", name)
	}
	var keys []types.NamespacedName
	for i := range vms.Items {
		keys = append(keys, client.ObjectKeyFromObject(&vms.Items[i]))
	}
	return keys
}

// vmsOfNode are the SpotInstanceVM whose instance a node is, and those of the pods on it.
func (r *Reconciler) vmsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	vms := map[types.NamespacedName]bool{}
	labels := node.GetLabels()
	if name := labels[spotv1alpha1.LabelSpotInstanceVM]; name != "" {
		vms[types.NamespacedName{Namespace: labels[spotv1alpha1.LabelSpotInstanceVMNamespace], Name: name}] = true
	}
	for _, vm := range r.vmsOfInstance(ctx, node.GetName()) {
		vms[vm] = true
	}
	var pods corev1.PodList
	if err := r.pods.List(ctx, &pods, client.MatchingFields{indexNode: node.GetName()}); err == nil {
		for i := range pods.Items {
			vms[vmOfPod(&pods.Items[i])] = true
		}
	}
	var requests []reconcile.Request
	for vm := range vms {
		requests = append(requests, reconcile.Request{NamespacedName: vm})
	}
	return requests
}

func vmOfPod(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[spotv1alpha1.LabelSpotInstanceVM]}
}

// vmsOfPod are the SpotInstanceVM of a pod, and that whose instance it is on.
func (r *Reconciler) vmsOfPod(ctx context.Context, pod *corev1.Pod) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: vmOfPod(pod)}}
	if pod.Spec.NodeName == "" {
		return requests
	}
	for _, vm := range r.vmsOfInstance(ctx, pod.Spec.NodeName) {
		requests = append(requests, reconcile.Request{NamespacedName: vm}) // the queue has each once
	}
	return requests
}

// vmOfJob is the SpotInstanceVM that a job refers to, which may use the job's credentials.
func vmOfJob(_ context.Context, object client.Object) []reconcile.Request {
	job, ok := object.(*spotv1alpha1.SpotInstanceJob)
	if !ok || job.Spec.SpotInstanceVMRef == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: job.Namespace, Name: job.Spec.SpotInstanceVMRef.Name}}}
}
