package spotinstancejob

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// podNodeIndex is the cache index of pods by the name of their node.
const podNodeIndex = "node"

// urgent is the queue priority of jobs on a node that changed: seconds are left to save what they do.
const urgent = 100

// jobOfLabel is the SpotInstanceJob that an object's label names.
func jobOfLabel(_ context.Context, object client.Object) []reconcile.Request {
	name, ok := object.GetLabels()[spotv1alpha1.LabelSpotInstanceJob]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// jobsOnNode enqueues the jobs with pods on a node, before all others.
func (r *Reconciler) jobsOnNode() handler.EventHandler {
	enqueue := func(ctx context.Context, node client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		var pods corev1.PodList
		if err := r.children.Client.List(ctx, &pods, client.MatchingFields{podNodeIndex: node.GetName()}, client.DisableReadYourWritesConsistency); err != nil {
			log.FromContext(ctx).Error(err, "List the pods of a node", "node", node.GetName())
			return
		}
		for i := range pods.Items {
			for _, request := range jobOfLabel(ctx, &pods.Items[i]) {
				if prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
					prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(urgent)}, request)
				} else {
					queue.Add(request)
				}
			}
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}

// nodeChanged lets through what makes a difference to the pods on a node.
func nodeChanged(now clock.PassiveClock) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, is := e.ObjectNew.(*corev1.Node)
		if !ok || !is {
			return true
		}
		at := now.Now()
		return outlineOf(before, at) != outlineOf(after, at)
	}}
}

// outline is what a plan reads of a node.
type outline struct {
	ready, outOfService, notice bool
	deadline                    int64 // in nanoseconds
}

func outlineOf(is *corev1.Node, at time.Time) outline {
	n := nodeOf(is, at)
	short := outline{ready: n.ready, outOfService: n.outOfService, notice: n.notice != nil}
	if n.notice != nil {
		short.deadline = n.notice.Deadline.UnixNano()
	}
	return short
}

// jobsOfVM are the jobs that name a SpotInstanceVM.
func (r *Reconciler) jobsOfVM(ctx context.Context, vm client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(vm.GetNamespace()), func(job *spotv1alpha1.SpotInstanceJob) bool {
		return job.Spec.SpotInstanceVMRef != nil && job.Spec.SpotInstanceVMRef.Name == vm.GetName()
	})
}

// agentsChanged looks at all jobs again, when the kind by which checkpoints are asked for comes, goes or changes.
func (r *Reconciler) agentsChanged(ctx context.Context, _ string, queue checkpointbackup.Queue) {
	for _, request := range r.requests(ctx, client.InNamespace(""), func(job *spotv1alpha1.SpotInstanceJob) bool {
		return job.Spec.CheckpointConfig != nil
	}) {
		queue.Add(request)
	}
}

func (r *Reconciler) requests(ctx context.Context, where client.ListOption, which func(*spotv1alpha1.SpotInstanceJob) bool) []reconcile.Request {
	var jobs spotv1alpha1.SpotInstanceJobList
	if err := r.List(ctx, &jobs, where, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		log.FromContext(ctx).Error(err, "List SpotInstanceJobs")
		return nil
	}
	var found []reconcile.Request
	for i := range jobs.Items {
		if which(&jobs.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
		}
	}
	return found
}

// vmChanged lets through what a plan reads of a SpotInstanceVM: that it is there, and its conditions.
func vmChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*spotv1alpha1.SpotInstanceVM)
		after, is := e.ObjectNew.(*spotv1alpha1.SpotInstanceVM)
		return !ok || !is || !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
	}}
}
