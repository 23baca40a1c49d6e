package checks

import (
	"errors"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func trainingJobTrains(env *cluster.Env) {
	job := startJob(env, "trainingjob")
	reachState(env, job, mlv1.StateRunning)
	env.Check(errors.Join(missingInCompleted(reachState(env, job, mlv1.StateCompleted))...))
}

func missingInCompleted(job *mlv1.TrainingJob) (missing []error) {
	lacks := func(format string, args ...any) { missing = append(missing, cluster.Failf(format, args...)) }
	s := &job.Status
	if s.Phase != mlv1.PhaseSucceeded {
		lacks("status.phase is %q although the job is Completed", s.Phase)
	}
	if s.Progress != "100%" || s.CurrentEpoch != s.TotalEpochs || s.TotalEpochs == 0 {
		lacks("the status says progress %q, epoch %d of %d of a completed job", s.Progress, s.CurrentEpoch, s.TotalEpochs)
	}
	if s.Workers == nil || s.Workers.Succeeded != job.Spec.NumWorkers {
		lacks("the status counts %+v workers, want %d that succeeded", s.Workers, job.Spec.NumWorkers)
	}
	if _, ok := s.Metrics["loss"]; !ok {
		lacks("status.metrics has no loss")
	}
	if s.StartTime == nil || s.CompletionTime == nil {
		lacks("status.startTime or status.completionTime is missing")
	}
	return missing
}
