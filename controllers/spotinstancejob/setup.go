package spotinstancejob

import (
	"context"
	"fmt"
	"reflect"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// Options of the controller.
type Options struct {
	// Concurrency is how many jobs are reconciled at the same time.
	Concurrency int
	// Namespaces to watch; all when it is empty.
	Namespaces []string
}

// SetupWithManager registers the controller and what it watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	children, err := r.setUpChildren(ctx, mgr, options)
	if err != nil {
		return err
	}
	if r.Backups == nil {
		if r.Backups, err = checkpointbackup.ForManager(mgr); err != nil {
			return fmt.Errorf("set up the client of CheckpointBackups: %w", err)
		}
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(jobOfLabel)
	vmChanged := reconciling.Changed(func(before, after *spotv1alpha1.SpotInstanceVM) bool { // a plan reads that it is there, and its conditions
		return !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("spotinstancejob").
		WithOptions(reconciling.Options(options.Concurrency)).
		For(&spotv1alpha1.SpotInstanceJob{}).
		WatchesRawSource(source.Kind[client.Object](children, &batchv1.Job{}, byLabel)).
		WatchesRawSource(source.Kind[client.Object](children, &corev1.Pod{}, byLabel)).
		WatchesRawSource(r.Backups.Source(byLabel, r.agentsChanged)).
		Watches(&corev1.Node{}, reconciling.First(urgent, r.jobsOnNode), builder.WithPredicates(r.nodeChanged())).
		Watches(&spotv1alpha1.SpotInstanceVM{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfVM), builder.WithPredicates(vmChanged)).
		Complete(tracing.Reconciler("SpotInstanceJob", r))
}

func (r *Reconciler) setUpChildren(ctx context.Context, mgr ctrl.Manager, options Options) (cache.Cache, error) {
	children, through, err := child.New(mgr, child.Options{
		Label: spotv1alpha1.LabelSpotInstanceJob, Namespaces: options.Namespaces,
		Kinds: map[client.Object]toolscache.TransformFunc{&corev1.Pod{}: child.Keep{Init: true, Scheduled: true}.Pods(), &batchv1.Job{}: bareJob},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the cache of Jobs and pods: %w", err)
	}
	r.children = child.Writer{Client: through, Direct: r.Direct}
	return children, reconciling.Index(ctx, children, &corev1.Pod{}, podNodeIndex, func(pod *corev1.Pod) []string {
		return []string{pod.Spec.NodeName}
	})
}

// bareJob strips a Job of its pods' template, which does not change.
func bareJob(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	job.ManagedFields = nil
	job.Spec = batchv1.JobSpec{Suspend: job.Spec.Suspend}
	job.Status = batchv1.JobStatus{
		Conditions: job.Status.Conditions, StartTime: job.Status.StartTime, CompletionTime: job.Status.CompletionTime,
	}
	return job, nil
}

const podNodeIndex = "node"

// urgent is the queue priority of jobs on a node that changed: seconds are left to save what they do.
const urgent = 100

var jobOfLabel = reconciling.ByLabel(spotv1alpha1.LabelSpotInstanceJob)

// jobsOnNode are the jobs with pods on a node.
func (r *Reconciler) jobsOnNode(ctx context.Context, node client.Object) (requests []reconcile.Request) {
	pods, err := reconciling.List[*corev1.Pod](ctx, r.children.Client, &corev1.PodList{},
		client.MatchingFields{podNodeIndex: node.GetName()}, client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "Find the jobs on a node", "node", node.GetName())
	}
	for _, pod := range pods {
		requests = append(requests, jobOfLabel(ctx, pod)...)
	}
	return requests
}

// nodeChanged lets through what makes a difference to the pods on a node.
func (r *Reconciler) nodeChanged() predicate.Predicate {
	return reconciling.Changed(func(before, after *corev1.Node) bool {
		now := r.Clock.Now()
		return !reflect.DeepEqual(nodeOf(before, now), nodeOf(after, now))
	})
}

func (r *Reconciler) jobsOfVM(ctx context.Context, vm client.Object) []reconcile.Request {
	return reconciling.Matching(ctx, r, &spotv1alpha1.SpotInstanceJobList{}, func(job *spotv1alpha1.SpotInstanceJob) bool {
		return job.Spec.SpotInstanceVMRef != nil && job.Spec.SpotInstanceVMRef.Name == vm.GetName()
	}, client.InNamespace(vm.GetNamespace()))
}

// agentsChanged looks at all jobs again, when the kind by which checkpoints are asked for comes, goes or changes.
func (r *Reconciler) agentsChanged(ctx context.Context, _ string, queue checkpointbackup.Queue) {
	for _, request := range reconciling.Matching(ctx, r, &spotv1alpha1.SpotInstanceJobList{}, func(job *spotv1alpha1.SpotInstanceJob) bool {
		return job.Spec.CheckpointConfig != nil
	}) {
		queue.Add(request)
	}
}
