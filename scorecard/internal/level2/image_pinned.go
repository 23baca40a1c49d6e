package level2

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const pinnedTest = "level2-image-pinned"

func imagePinned() suite.Test {
	return suite.Test{
		Name:     pinnedTest,
		Suite:    Suite,
		Question: "Is the worker image of a TrainingJob that names none written into it for good, so that an upgrade of the operator does not change a job that exists?",
		Run:      isPinned,
	}
}

// isPinned needs no worker: the job is suspended.
func isPinned(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "pinned")
	if err != nil {
		return err
	}
	job.Spec.Image, job.Spec.Suspend = "", ptr.To(true)
	if err := training.Start(ctx, l, pinnedTest, job); err != nil {
		return err
	}
	var stored mlv1.TrainingJob
	if err := l.Get(ctx, client.ObjectKeyFromObject(job), &stored); err != nil {
		return fmt.Errorf("read TrainingJob %s: %w", job.Name, err)
	}
	if stored.Spec.Image == "" {
		return verdict.Failf("spec.image of a TrainingJob that names none stays empty: its next restart takes the image of whichever operator is there then").
			Try("See that the operator's mutating webhook is installed.")
	}
	l.Logf("spec.image is %s", stored.Spec.Image)
	return errors.Join(cannotBecome(ctx, l, &stored, `{"image":"registry.example.com/another:v1"}`), cannotBecome(ctx, l, &stored, `{"image":null}`))
}

// cannotBecome sends a change of the spec that must be refused, as a dry run.
func cannotBecome(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob, spec string) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))
	changed := job.DeepCopy()
	err := l.Patch(ctx, changed, patch, client.DryRunAll)
	switch {
	case err == nil && changed.Spec.Image == job.Spec.Image:
		return nil // taken back by the webhook
	case err == nil:
		return verdict.Failf("the change %s of a TrainingJob that exists is accepted", spec)
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.image"):
		return nil
	}
	return fmt.Errorf("try the change %s: %w", spec, err)
}
