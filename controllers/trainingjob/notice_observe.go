package trainingjob

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

const (
	// podNodeIndex is the cache index of worker pods by their node.
	podNodeIndex = "training-node"
	// nodeNoticeIndex is the cache index of the nodes that have a notice, under the key "yes". There are seldom any.
	nodeNoticeIndex = "preemption-notice"
	// jobSpotIndex is the cache index of TrainingJobs by the SpotInstanceVM that they name.
	jobSpotIndex = "spot-instance-vm"

	// urgentStart is the queue priority of a job with workers on a node that goes: seconds count.
	urgentStart = 20
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=list;watch

// observeNotices reads which nodes go, and the SpotInstanceVM that the job names, both from the cache.
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
	if err := r.observeNoticed(ctx, o); err != nil {
		return err
	}
	if build.SpotName(o.job) == "" {
		return nil
	}
	var vm spotv1alpha1.SpotInstanceVM
	err := r.Get(ctx, client.ObjectKey{Namespace: o.job.Namespace, Name: build.SpotName(o.job)}, &vm)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read SpotInstanceVM %s: %w", build.SpotName(o.job), err)
	}
	if err == nil && vm.DeletionTimestamp == nil {
		o.spotVM = &vm
	}
	return nil
}

// observeNoticed finds out which of the nodes in the status are still there although they have no notice any more.
func (r *Reconciler) observeNoticed(ctx context.Context, o *observed) error {
	if o.job.Status.Preemption == nil {
		return nil
	}
	for _, known := range o.job.Status.Preemption.Nodes {
		if _, noticed := o.notices[known.Name]; noticed {
			continue
		}
		var node corev1.Node
		err := r.Get(ctx, client.ObjectKey{Name: known.Name}, &node)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read node %s: %w", known.Name, err)
		}
		if o.unnoticed == nil {
			o.unnoticed = map[string]bool{}
		}
		o.unnoticed[known.Name] = true
	}
	return nil
}

// isWithdrawn says whether a node of the status is there and has no notice any more.
func (o *observed) isWithdrawn(name string) bool { return o.unnoticed[name] }

// watchSpot adds the watches of nodes and SpotInstanceVMs.
func (r *Reconciler) watchSpot(ctx context.Context, mgr ctrlmanager.Manager, controller *builder.Builder) error {
	indexes := []struct {
		of    client.Object
		field string
		keys  client.IndexerFunc
	}{
		{&corev1.Pod{}, podNodeIndex, func(object client.Object) []string {
			pod, ok := object.(*corev1.Pod)
			if _, ours := object.GetAnnotations()[mlv1.AnnotationAttempt]; !ok || !ours || pod.Spec.NodeName == "" {
				return nil
			}
			return []string{pod.Spec.NodeName}
		}},
		{&corev1.Node{}, nodeNoticeIndex, func(object client.Object) []string {
			node, ok := object.(*corev1.Node)
			if !ok {
				return nil
			}
			if _, noticed := nodenotice.FromNode(node, node.CreationTimestamp.Time); !noticed {
				return nil
			}
			return []string{"yes"}
		}},
		{&mlv1.TrainingJob{}, jobSpotIndex, func(object client.Object) []string {
			job, ok := object.(*mlv1.TrainingJob)
			if !ok || build.SpotName(job) == "" {
				return nil
			}
			return []string{build.SpotName(job)}
		}},
	}
	for _, index := range indexes {
		if err := mgr.GetFieldIndexer().IndexField(ctx, index.of, index.field, index.keys); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.of, index.field, err)
		}
	}
	controller.
		Watches(&corev1.Node{}, &urgently{jobs: r.jobsOnNode}, builder.WithPredicates(nodenotice.NoticeChanged())).
		Watches(&spotv1alpha1.SpotInstanceVM{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfSpotVM), builder.WithPredicates(capacityChanged()))
	return nil
}

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
	var jobs mlv1.TrainingJobList
	err := r.List(ctx, &jobs, client.InNamespace(vm.GetNamespace()), client.MatchingFields{jobSpotIndex: vm.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		if !isFinished(&jobs.Items[i].Status) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
		}
	}
	return requests
}

// capacityChanged lets the events of SpotInstanceVMs through that tell jobs something: one came or went, or what its
// conditions say has changed.
func capacityChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		before, ok := update.ObjectOld.(*spotv1alpha1.SpotInstanceVM)
		after, also := update.ObjectNew.(*spotv1alpha1.SpotInstanceVM)
		return !ok || !also || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(essentials(before), essentials(after))
	}}
}

// essentials are the conditions without their times.
func essentials(vm *spotv1alpha1.SpotInstanceVM) []metav1.Condition {
	var list []metav1.Condition
	for _, c := range vm.Status.Conditions {
		list = append(list, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return list
}

// urgently enqueues jobs before all others.
type urgently struct {
	jobs func(context.Context, client.Object) []reconcile.Request
}

var _ handler.EventHandler = (*urgently)(nil)

func (u *urgently) add(ctx context.Context, of client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for _, request := range u.jobs(ctx, of) {
		if prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(urgentStart)}, request)
		} else {
			queue.Add(request)
		}
	}
}

// Create implements handler.EventHandler.
func (u *urgently) Create(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	u.add(ctx, e.Object, queue)
}

// Update implements handler.EventHandler.
func (u *urgently) Update(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	u.add(ctx, e.ObjectNew, queue)
}

// Delete implements handler.EventHandler.
func (u *urgently) Delete(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	u.add(ctx, e.Object, queue)
}

// Generic implements handler.EventHandler.
func (u *urgently) Generic(ctx context.Context, e event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	u.add(ctx, e.Object, queue)
}
