package workflow

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// retryRefused is when to try again what the API server refused and may accept later.
const retryRefused = 30 * time.Second

// refusals say of stages why their AIJobs could not be created.
type refusals map[aiplatformv1alpha1.StageName]*child.Refusal

// apply does what the plan wants. Every step can be done again: a crash after any of them leads to the same. It returns the stages whose
// AIJobs could not be created, and the errors of all writes that the API server did not refuse.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) (refusals, error) {
	refused := refusals{}
	var failed []error
	for _, job := range d.stop {
		failed = append(failed, r.jobs().Merge(ctx, job, map[string]any{"spec": map[string]any{"cancel": true}}))
	}
	for _, job := range d.create {
		_, err := r.jobs().Create(ctx, o.workflow, job)
		if err == nil {
			continue
		}
		var refusal *child.Refusal
		if !errors.As(err, &refusal) {
			failed = append(failed, err)
			refusal = cmp.Or(child.ProblemOf(err), &child.Refusal{Reason: reasons.WriteFailed, Message: err.Error()})
		}
		refused[aiplatformv1alpha1.StageName(job.Labels[aiplatformv1alpha1.LabelStage])] = refusal
	}
	for _, job := range d.remove {
		failed = append(failed, r.jobs().Delete(ctx, job, client.DisableReadYourWritesConsistency))
	}
	return refused, errors.Join(failed...)
}

func (r *Reconciler) jobs() child.Writer { return child.Writer{Client: r.Client, Direct: r.Direct} }

// addRefused writes into a plan what the API server refused.
func addRefused(o observed, d *desired, refused refusals) {
	if len(refused) == 0 {
		return
	}
	p := planner{observed: o, desired: *d}
	for name, one := range refused {
		stage := p.stage(name)
		stage.JobName = ""
		if one.Reason == reasons.InvalidSpec || one.Reason == reasons.ObjectConflict { // trying again does not help
			p.fail(stage, one.Message) // the other stages are stopped once this is written
			continue
		}
		stage.Message = shorten(one.Message)
		p.wake(retryRefused)
	}
	p.describe()
	*d = p.desired
}
