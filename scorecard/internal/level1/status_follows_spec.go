package level1

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const statusTest = "level1-status-follows-spec"

func statusFollowsSpec() suite.Test {
	return suite.Test{
		Name:     statusTest,
		Suite:    Suite,
		Question: "Does the status of a TrainingJob have conditions with reasons, and does observedGeneration follow every change of the spec?",
		Run:      follows,
	}
}

// follows needs no worker: the job is suspended.
func follows(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "status")
	if err != nil {
		return err
	}
	job.Spec.Suspend = ptr.To(true)
	if err := training.Start(ctx, l, statusTest, job); err != nil {
		return err
	}
	for change := 1; ; change++ {
		seen, err := training.Reach(ctx, l, job, fmt.Sprintf("reports on generation %d", job.Generation), func(now *mlv1.TrainingJob) bool {
			return now.Status.ObservedGeneration >= job.Generation && len(now.Status.Conditions) > 0
		})
		if err != nil {
			return err
		}
		if err := errors.Join(complete(seen)...); err != nil || change == 3 {
			return err
		}
		if err := training.Change(ctx, l, seen, fmt.Sprintf(`{"ttlSecondsAfterFinished":%d}`, 1000+change)); err != nil {
			return err
		}
		job.Generation = seen.Generation + 1
	}
}

// complete says what the conditions of a job lack.
func complete(job *mlv1.TrainingJob) (missing []error) {
	for _, condition := range job.Status.Conditions {
		if condition.Reason == "" || condition.Message == "" || condition.LastTransitionTime.IsZero() {
			missing = append(missing, verdict.Failf("the condition %s has no reason, message or lastTransitionTime", condition.Type))
		}
		if condition.ObservedGeneration != job.Generation {
			missing = append(missing, verdict.Failf("the condition %s speaks of generation %d of a job of generation %d",
				condition.Type, condition.ObservedGeneration, job.Generation))
		}
	}
	return missing
}
