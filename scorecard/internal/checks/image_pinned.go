package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// imagePinned needs no worker: the job is suspended.
func imagePinned(ctx context.Context, env *cluster.Env) error {
	job, err := startJob(ctx, env, "pinned", suspend, func(job *mlv1.TrainingJob) { job.Spec.Image = "" })
	if err != nil {
		return err
	}
	var stored mlv1.TrainingJob
	if err := env.Get(ctx, client.ObjectKeyFromObject(job), &stored); err != nil {
		return fmt.Errorf("read TrainingJob %s: %w", job.Name, err)
	}
	if stored.Spec.Image == "" {
		return cluster.Failf("spec.image of a TrainingJob that names none stays empty: its next restart uses the default image of the operator that is then installed").
			Try("See that the operator's mutating webhook is installed.")
	}
	env.Logf("spec.image is %s", stored.Spec.Image)
	return errors.Join(rejectsChange(ctx, env, &stored, `{"image":"registry.example.com/another:v1"}`), rejectsChange(ctx, env, &stored, `{"image":null}`))
}

func rejectsChange(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, spec string) error {
	changed := job.DeepCopy()
	err := env.Patch(ctx, changed, specPatch(spec), client.DryRunAll)
	switch {
	case err == nil && changed.Spec.Image == job.Spec.Image:
		return nil // reverted by the webhook
	case err == nil:
		return cluster.Failf("the change %s of a TrainingJob that exists is accepted", spec)
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.image"):
		return nil
	}
	return fmt.Errorf("try the change %s: %w", spec, err)
}
