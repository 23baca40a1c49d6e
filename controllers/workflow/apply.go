package workflow

import (
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

// refusals are those of the API server of the AIJobs of stages.
type refusals map[aiplatformv1alpha1.StageName]*child.Refusal

// apply does what the plan wants. Every step can be done again: a crash after any of them leads to the same. It returns the stages whose
// AIJobs the API server refuses.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) (refusals, error) {
	refused := refusals{}
	for _, job := range d.stop {
		if err := r.jobs().Merge(ctx, job, map[string]any{"spec": map[string]any{"cancel": true}}); err != nil {
			return nil, err
		}
	}
	for _, job := range d.create {
		_, err := r.jobs().Create(ctx, o.workflow, job)
		var refusal *child.Refusal
		if errors.As(err, &refusal) {
			refused[aiplatformv1alpha1.StageName(job.Labels[aiplatformv1alpha1.LabelStage])] = refusal
		} else if err != nil {
			return nil, err
		}
	}
	for _, job := range d.remove {
		if err := r.jobs().Delete(ctx, job, client.DisableReadYourWritesConsistency); err != nil {
			return nil, err
		}
	}
	return refused, nil
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
