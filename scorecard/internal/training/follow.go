package training

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

// In holds for a job in the state.
func In(state mlv1.State) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool { return job.Status.State == state }
}

// Saved holds for a job that runs and has a checkpoint of the epoch or a later one.
func Saved(epoch int32) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.Checkpoint != nil && job.Status.Checkpoint.Epoch >= epoch
	}
}

// Reach waits until the check holds for the job, and returns the job as it is then. A job that fails, or completes
// before the check holds, is a Failure at once.
func Reach(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob, what string, check func(*mlv1.TrainingJob) bool) (*mlv1.TrainingJob, error) {
	last := &mlv1.TrainingJob{}
	seen := ""
	err := l.Until(ctx, "TrainingJob "+job.Name+" "+what, func(ctx context.Context) (bool, error) {
		if err := l.Get(ctx, client.ObjectKeyFromObject(job), last); err != nil {
			return false, err
		}
		if now := tell(last); now != seen {
			l.Logf("%s", now)
			seen = now
		}
		if check(last) {
			return true, nil
		}
		switch last.Status.State {
		case mlv1.StateFailed:
			return false, verdict.Failf("TrainingJob %s failed: %s: %s", job.Name, last.Status.Reason, last.Status.FailureReason)
		case mlv1.StateCompleted:
			return false, verdict.Failf("TrainingJob %s is Completed before it %s", job.Name, what)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w; last seen: %s", err, tell(last))
	}
	return last, nil
}

// tell sums up a job in a line.
func tell(job *mlv1.TrainingJob) string {
	s := &job.Status
	line := fmt.Sprintf("TrainingJob %s is %s (%s)", job.Name, s.State, s.Reason)
	if s.Progress != "" {
		line += fmt.Sprintf(", %s, epoch %d of %d", s.Progress, s.CurrentEpoch, s.TotalEpochs)
	}
	if c := s.Checkpoint; c != nil {
		line += fmt.Sprintf(", checkpoint of epoch %d, step %d", c.Epoch, c.Step)
	}
	if s.RestartCount > 0 {
		line += fmt.Sprintf(", %d restarts", s.RestartCount)
	}
	return line
}

// Change sends a merge patch of the job's spec, such as {"suspend":true}.
func Change(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob, spec string) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))
	changed := job.DeepCopy()
	if err := l.Patch(ctx, changed, patch); err != nil {
		if apierrors.IsInvalid(err) {
			return verdict.Failf("the API server refuses the change %s: %v", spec, err)
		}
		return fmt.Errorf("change the spec of TrainingJob %s to %s: %w", job.Name, spec, err)
	}
	l.Logf("changed the spec of TrainingJob %s: %s", job.Name, spec)
	return nil
}
