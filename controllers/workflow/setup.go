package workflow

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// Options of the controller.
type Options struct {
	// Concurrency is how many workflows are reconciled at the same time.
	Concurrency int
}

// ownerIndex is the cache index of AIJobs by the UID of the AgentWorkflow that made them.
const ownerIndex = "agentworkflow"

const kindAgentWorkflow = "AgentWorkflow"

// SetupWithManager registers the controller and what it watches. The context ends with the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	err := reconciling.Index(ctx, mgr.GetFieldIndexer(), &aiplatformv1alpha1.AIJob{}, ownerIndex, func(job *aiplatformv1alpha1.AIJob) []string {
		if owner := metav1.GetControllerOf(job); owner != nil && owner.Kind == kindAgentWorkflow {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if r.triggers, err = newTriggers(ctx, mgr); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("agentworkflow").
		WithOptions(reconciling.Options(options.Concurrency)).
		For(&aiplatformv1alpha1.AgentWorkflow{}).
		Owns(&aiplatformv1alpha1.AIJob{}, builder.WithPredicates(reconciling.Changed(jobChanged))).
		Watches(&aiplatformv1alpha1.Agent{}, handler.EnqueueRequestsFromMapFunc(r.workflowsOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.triggers.start)).
		Complete(tracing.Reconciler("AgentWorkflow", r))
}

func (r *Reconciler) workflowsOf(ctx context.Context, agent client.Object) []reconcile.Request {
	return reconciling.Matching(ctx, r, &aiplatformv1alpha1.AgentWorkflowList{}, func(workflow *aiplatformv1alpha1.AgentWorkflow) bool {
		return slices.Contains(agentsOf(workflow), agent.GetName())
	}, client.InNamespace(agent.GetNamespace()))
}

// jobChanged says whether two states of an AIJob differ in what a plan reads: not, for one, its place in the queue.
func jobChanged(before, after *aiplatformv1alpha1.AIJob) bool {
	return before.Generation != after.Generation || !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
		!equality.Semantic.DeepEqual(readOf(before), readOf(after))
}

// readOf is the part of an AIJob's status that a plan reads.
func readOf(job *aiplatformv1alpha1.AIJob) aiplatformv1alpha1.AIJobStatus {
	return aiplatformv1alpha1.AIJobStatus{
		Phase: job.Status.Phase, Reason: job.Status.Reason, Message: job.Status.Message, RetryCount: job.Status.RetryCount,
		StartTime: job.Status.StartTime, CompletionTime: job.Status.CompletionTime, Outputs: job.Status.Outputs,
	}
}
