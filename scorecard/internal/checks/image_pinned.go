package checks

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// imagePinned needs no worker: the job is suspended.
func imagePinned(env *cluster.Env) {
	job := startJob(env, "pinned", suspend, func(job *mlv1.TrainingJob) { job.Spec.Image = "" })
	var stored mlv1.TrainingJob
	env.Checkf(env.Get(env.Context, client.ObjectKeyFromObject(job), &stored), "read TrainingJob %s", job.Name)
	if stored.Spec.Image == "" {
		env.Check(cluster.Failf("spec.image of a TrainingJob that names none stays empty: its next restart uses the default image of the operator that is then installed").
			Try("See that the operator's mutating webhook is installed."))
	}
	env.Logf("spec.image is %s", stored.Spec.Image)
	each(env, []string{`{"image":"registry.example.com/another:v1"}`, `{"image":null}`}, func(spec string, env *cluster.Env) {
		changed := stored.DeepCopy()
		err := env.Patch(env.Context, changed, specPatch(spec), client.DryRunAll)
		if err == nil && changed.Spec.Image != stored.Spec.Image { // else reverted by the webhook
			env.Failf("the change %s of a TrainingJob that exists is accepted", spec)
		}
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.image") {
			env.Checkf(err, "try the change %s", spec)
		}
	})
}
