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

// refusedStage is a stage whose AIJob the API server refuses.
type refusedStage struct {
	name aiplatformv1alpha1.StageName
	*child.Refusal
}

// isPermanent says whether trying again does not help: the stage fails.
func (r refusedStage) isPermanent() bool {
	return r.Reason == reasons.InvalidSpec || r.Reason == reasons.ObjectConflict
}

// apply does what the plan wants. Every step can be done again: a crash after any of them leads to the same. It returns the stages whose
// AIJobs the API server refuses.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) (refused []refusedStage, err error) {
	for _, job := range d.stop {
		if err := r.jobs().Merge(ctx, job, map[string]any{"spec": map[string]any{"cancel": true}}); err != nil {
			return nil, err
		}
	}
	for _, job := range d.create {
		_, err := r.jobs().Create(ctx, o.workflow, job)
		var refusal *child.Refusal
		if errors.As(err, &refusal) {
			refused = append(refused, refusedStage{aiplatformv1alpha1.StageName(job.Labels[aiplatformv1alpha1.LabelStage]), refusal})
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
func addRefused(o observed, d *desired, refused []refusedStage) {
	if len(refused) == 0 {
		return
	}
	p := planner{observed: o, desired: *d}
	for _, one := range refused {
		stage := p.stage(one.name)
		stage.JobName = ""
		if one.isPermanent() {
			p.fail(stage, one.Message) // the other stages are stopped once this is written
			continue
		}
		stage.Message = shorten(one.Message)
		p.wake(retryRefused)
	}
	p.describe()
	*d = p.desired
}
