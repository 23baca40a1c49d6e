package trainingjob

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=list;watch,namespace=system

// observeNotices reads from the cache which nodes go, and which of those in the status are still there although they have no notice any more.
func (r *Reconciler) observeNotices(ctx context.Context, o *observed) error {
	if isFinished(&o.job.Status) {
		return nil
	}
	options := []client.ListOption{client.MatchingFields{nodeNoticeIndex: "yes"}, client.UnsafeDisableDeepCopy}
	going, err := reconciling.List[*corev1.Node](ctx, r, &corev1.NodeList{}, options...)
	if err != nil {
		return err
	}
	o.notices, o.unnoticed = map[string]nodenotice.Notice{}, map[string]bool{}
	for _, node := range going {
		if notice, ok := nodenotice.FromNode(node, o.now); ok {
			o.notices[notice.Node] = notice
		}
	}
	for _, known := range ptr.Deref(o.job.Status.Preemption, mlv1.PreemptionStatus{}).Nodes {
		if _, noticed := o.notices[known.Name]; noticed {
			continue
		}
		there, err := child.Find(ctx, r, client.ObjectKey{Name: known.Name}, &corev1.Node{})
		if err != nil {
			return err
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
	vm, err := reconciling.Get[spotv1alpha1.SpotInstanceVM](ctx, r, o.job.Namespace, name)
	if vm != nil && vm.DeletionTimestamp == nil {
		o.spotVM = vm
	}
	return err
}

// isWithdrawn says whether a node of the status is there and has no notice any more.
func (o *observed) isWithdrawn(name string) bool { return o.unnoticed[name] }

// jobsOnNode are the jobs with workers on a node.
func (r *Reconciler) jobsOnNode(ctx context.Context, node client.Object) []reconcile.Request {
	options := []client.ListOption{client.MatchingFields{podNodeIndex: node.GetName()}, client.UnsafeDisableDeepCopy}
	pods, _ := reconciling.List[*corev1.Pod](ctx, r, &corev1.PodList{}, options...) // the cache does not fail on a list of what it indexes
	var requests []reconcile.Request
	for _, pod := range pods {
		requests = append(requests, reconciling.ByLabel(mlv1.LabelTrainingJob)(ctx, pod)...)
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
			!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, func(a, b metav1.Condition) bool {
				return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
			})
	})
}
