package spotinstancevm

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// keep notes the names of the instances of a SpotInstanceVM.
func (n *names) keep(vm *spotv1alpha1.SpotInstanceVM, status *spotv1alpha1.SpotInstanceVMStatus) {
	key := client.ObjectKeyFromObject(vm)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes == nil {
		n.nodes, n.of = map[string]types.NamespacedName{}, map[types.NamespacedName][]string{}
		n.uids = map[types.NamespacedName]types.UID{}
	}
	for _, name := range n.of[key] {
		delete(n.nodes, name)
	}
	n.of[key], n.uids[key] = nil, vm.UID
	for _, entry := range status.ProvisionedInstances {
		n.nodes[entry.Name] = key
		n.of[key] = append(n.of[key], entry.Name)
	}
}

// forget a SpotInstanceVM. It returns its UID.
func (n *names) forget(vm types.NamespacedName) (types.UID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range n.of[vm] {
		delete(n.nodes, name)
	}
	uid, ok := n.uids[vm]
	delete(n.of, vm)
	delete(n.uids, vm)
	return uid, ok
}

func (n *names) vmOf(node string) (types.NamespacedName, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	vm, ok := n.nodes[node]
	return vm, ok
}

// vmsOfNode are the SpotInstanceVM whose instance a node is, and those of the pods on it.
func (r *Reconciler) vmsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	vms := map[types.NamespacedName]bool{}
	labels := node.GetLabels()
	if name := labels[spotv1alpha1.LabelSpotInstanceVM]; name != "" {
		vms[types.NamespacedName{Namespace: labels[spotv1alpha1.LabelSpotInstanceVMNamespace], Name: name}] = true
	}
	if vm, ok := r.names.vmOf(node.GetName()); ok {
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
func (r *Reconciler) vmsOfPod(pod *corev1.Pod) []reconcile.Request {
	requests := []reconcile.Request{{NamespacedName: vmOfPod(pod)}}
	if vm, ok := r.names.vmOf(pod.Spec.NodeName); ok && vm != vmOfPod(pod) {
		requests = append(requests, reconcile.Request{NamespacedName: vm})
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
