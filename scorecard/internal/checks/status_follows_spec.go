package checks

import (
	"context"
	"errors"
	"fmt"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// statusFollowsSpec needs no worker: the job is suspended.
func statusFollowsSpec(ctx context.Context, env *cluster.Env) error {
	job, err := startJob(ctx, env, "status", suspend)
	if err != nil {
		return err
	}
	for change := 1; ; change++ {
		seen, err := reach(ctx, env, job, fmt.Sprintf("reports on generation %d", job.Generation), func(now *mlv1.TrainingJob) bool {
			return now.Status.ObservedGeneration >= job.Generation && len(now.Status.Conditions) > 0
		})
		if err != nil {
			return err
		}
		if err := errors.Join(missingInConditions(seen)...); err != nil || change == 3 {
			return err
		}
		if err := changeSpec(ctx, env, seen, fmt.Sprintf(`{"ttlSecondsAfterFinished":%d}`, 1000+change)); err != nil {
			return err
		}
		job.Generation = seen.Generation + 1
	}
}

func missingInConditions(job *mlv1.TrainingJob) (missing []error) {
	for _, condition := range job.Status.Conditions {
		if condition.Reason == "" || condition.Message == "" || condition.LastTransitionTime.IsZero() {
			missing = append(missing, cluster.Failf("the condition %s has no reason, message or lastTransitionTime", condition.Type))
		}
		if condition.ObservedGeneration != job.Generation {
			missing = append(missing, cluster.Failf("the condition %s is of generation %d; the job has generation %d",
				condition.Type, condition.ObservedGeneration, job.Generation))
		}
	}
	return missing
}
