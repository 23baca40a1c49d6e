package trainingjob

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// urgentStart is the queue priority of a job with workers on a node that goes: seconds count.
const urgentStart = 20

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=list;watch

// observeNotices reads from the cache which nodes go, and which of those in the status are still there although they have no notice any more.
func (r *Reconciler) observeNotices(ctx context.Context, o *observed) error {
	if isFinished(&o.job.Status) {
		return nil
	}
	var going corev1.NodeList
	if err := r.List(ctx, &going, client.MatchingFields{nodeNoticeIndex: "yes"}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the nodes with a notice: %w", err)
	}
	for i := range going.Items {
		if notice, ok := nodenotice.FromNode(&going.Items[i], o.now); ok {
			if o.notices == nil {
				o.notices = map[string]nodenotice.Notice{}
			}
			o.notices[notice.Node] = notice
		}
	}
	if o.job.Status.Preemption == nil {
		return nil
	}
	for _, known := range o.job.Status.Preemption.Nodes {
		if _, noticed := o.notices[known.Name]; noticed {
			continue
		}
		there, err := child.Find(ctx, r, client.ObjectKey{Name: known.Name}, &corev1.Node{})
		if err != nil {
			return err
		}
		if o.unnoticed == nil {
			o.unnoticed = map[string]bool{}
		}
		o.unnoticed[known.Name] = there
	}
	return nil
}

// observeSpot reads the SpotInstanceVM that the job names from the cache.
func (r *Reconciler) observeSpot(ctx context.Context, o *observed) error {
	name := build.SpotName(o.job)
	if isFinished(&o.job.Status) || name == "" {
		return nil
	}
	var vm spotv1alpha1.SpotInstanceVM
	found, err := child.Find(ctx, r, client.ObjectKey{Namespace: o.job.Namespace, Name: name}, &vm)
	if found && vm.DeletionTimestamp == nil {
		o.spotVM = &vm
	}
	return err
}

// isWithdrawn says whether a node of the status is there and has no notice any more.
func (o *observed) isWithdrawn(name string) bool { return o.unnoticed[name] }

// jobsOnNode are the jobs with workers on a node.
func (r *Reconciler) jobsOnNode(ctx context.Context, node client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.MatchingFields{podNodeIndex: node.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache does not fail on a list of what it indexes
	}
	known := map[types.NamespacedName]bool{}
	var requests []reconcile.Request
	for i := range pods.Items {
		job := types.NamespacedName{Namespace: pods.Items[i].Namespace, Name: pods.Items[i].Labels[mlv1.LabelTrainingJob]}
		if !known[job] {
			known[job] = true
			requests = append(requests, reconcile.Request{NamespacedName: job})
		}
	}
	return requests
}

// jobsOfSpotVM are the jobs that name a SpotInstanceVM.
func (r *Reconciler) jobsOfSpotVM(ctx context.Context, vm client.Object) []reconcile.Request {
	return reconciling.Matching(ctx, r, &mlv1.TrainingJobList{}, func(job *mlv1.TrainingJob) bool { return !isFinished(&job.Status) },
		client.InNamespace(vm.GetNamespace()), client.MatchingFields{jobSpotIndex: vm.GetName()})
}

// capacityChanged lets the events of SpotInstanceVMs through that tell jobs something: one came or went, or what its
// conditions say has changed.
func capacityChanged() predicate.Predicate {
	return reconciling.Changed(func(before, after *spotv1alpha1.SpotInstanceVM) bool {
		return (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(essentials(before), essentials(after))
	})
}

// essentials are the conditions without their times.
func essentials(vm *spotv1alpha1.SpotInstanceVM) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range vm.Status.Conditions {
		list = append(list, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return list
}
