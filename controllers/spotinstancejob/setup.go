package spotinstancejob

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/child"
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
	return ctrl.NewControllerManagedBy(mgr).
		Named("spotinstancejob").
		WithOptions(controller.Options{MaxConcurrentReconciles: options.Concurrency}).
		For(&spotv1alpha1.SpotInstanceJob{}).
		WatchesRawSource(source.Kind[client.Object](children, &batchv1.Job{}, byLabel)).
		WatchesRawSource(source.Kind[client.Object](children, &corev1.Pod{}, byLabel)).
		WatchesRawSource(r.Backups.Source(byLabel, r.agentsChanged)).
		Watches(&corev1.Node{}, r.jobsOnNode(), builder.WithPredicates(nodeChanged(r.Clock))).
		Watches(&spotv1alpha1.SpotInstanceVM{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfVM), builder.WithPredicates(vmChanged())).
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
	err = children.IndexField(ctx, &corev1.Pod{}, podNodeIndex, func(object client.Object) []string {
		if name := object.(*corev1.Pod).Spec.NodeName; name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	return children, nil
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
