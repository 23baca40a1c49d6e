package level3

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const restoreTest = "level3-delete-restore"

func deleteRestore() suite.Test {
	return suite.Test{
		Name:     restoreTest,
		Suite:    Suite,
		Question: "Do the checkpoints outlive a TrainingJob that is deleted, and does a new one of that name go on from them?",
		Patience: training.Patience,
		Run:      restores,
	}
}

func restores(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "restore")
	if err != nil {
		return err
	}
	training.Checkpoints(job, 1)
	training.Slow(job, 24, 100*time.Millisecond)
	again := &mlv1.TrainingJob{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace},
		Spec:       *job.Spec.DeepCopy(),
	}
	again.Spec.Checkpoint.ResumeFrom = "latest"
	if err := training.Start(ctx, l, restoreTest, job); err != nil {
		return err
	}
	saved, err := training.Reach(ctx, l, job, "has a checkpoint", training.Saved(1))
	if err != nil {
		return err
	}
	claim, err := training.Claim(ctx, l, job)
	if err != nil {
		return err
	}

	if err := l.Remove(ctx, job); err != nil {
		return err
	}
	l.Logf("deleted TrainingJob %s", job.Name)
	kept, err := training.Claim(ctx, l, job)
	if err != nil {
		return err
	}
	if kept.UID != claim.UID || kept.DeletionTimestamp != nil {
		return verdict.Failf("PersistentVolumeClaim %s did not outlive TrainingJob %s", claim.Name, job.Name)
	}

	if err := training.Start(ctx, l, restoreTest, again); err != nil {
		return err
	}
	done, err := training.Reach(ctx, l, again, "is Completed", training.In(mlv1.StateCompleted))
	if err != nil {
		return err
	}
	return training.WentOnFrom(ctx, l, done, saved.Status.Checkpoint)
}
