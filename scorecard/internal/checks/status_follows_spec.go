package checks

import (
	"errors"
	"fmt"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// statusFollowsSpec needs no worker: the job is suspended.
func statusFollowsSpec(env *cluster.Env) {
	job := startJob(env, "status", suspend)
	for change := range 3 {
		if change > 0 {
			changeSpec(env, job, fmt.Sprintf(`{"ttlSecondsAfterFinished":%d}`, 1000+change))
			job.Generation++
		}
		seen := reach(env, job, fmt.Sprintf("reports on generation %d", job.Generation), func(now *mlv1.TrainingJob) bool {
			return now.Status.ObservedGeneration >= job.Generation && len(now.Status.Conditions) > 0
		})
		env.Check(errors.Join(missingInConditions(seen)...))
		job.Generation = seen.Generation
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
