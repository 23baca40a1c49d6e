package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestMistakes(t *testing.T) {
	limits := func(name string) func(*mlv1.TrainingJobSpec) {
		return func(s *mlv1.TrainingJobSpec) {
			s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}}
		}
	}
	epochs := func(s *mlv1.TrainingJobSpec) { s.Hyperparameters = &mlv1.Hyperparameters{Epochs: ptr.To[int32](5)} }
	for _, test := range []struct {
		name string
		job  *builders.TrainingJobBuilder
		spec func(*mlv1.TrainingJobSpec)
		want string // part of the only warning; empty for none
	}{
		{"a plain job", builders.TrainingJob("bert"), func(*mlv1.TrainingJobSpec) {}, ""},
		{"a secret as a plain variable", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) {
			s.Env = []corev1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: "HF_TOKEN", Value: "hunter2"}}
		}, "spec.env[1]: HF_TOKEN seems to be a secret"},
		{"a secret as a parameter", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) {
			s.Hyperparameters = &mlv1.Hyperparameters{AdditionalParams: map[string]mlv1.ParamValue{"db-password": "hunter2", "max_tokens": "512"}}
		}, "spec.hyperparameters.additionalParams: db-password seems to be a secret"},
		{"a secret from a Secret", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) {
			s.Env = []corev1.EnvVar{{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "t"}}}}
		}, ""},
		{"an open Ray cluster", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) {
			s.Framework, s.Networking.Isolation = mlv1.FrameworkRay, mlv1.IsolationNone
		}, "spec.networking.isolation: None lets every pod of the cluster run programs in this job"},
		{"a closed Ray cluster", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) { s.Framework = mlv1.FrameworkRay }, ""},
		{"a check of the network of a single worker", builders.TrainingJob("bert").Workers(1), func(s *mlv1.TrainingJobSpec) {
			s.Networking.Preflight = ptr.To(true)
		}, "spec.networking.preflight: has no effect"},
		{"a check of the network", builders.TrainingJob("bert").Workers(2), func(s *mlv1.TrainingJobSpec) { s.Networking.Preflight = ptr.To(true) }, ""},
		{"two kinds of GPUs", builders.TrainingJob("bert").GPUs(1), limits("amd.com/gpu"), "each worker asks for 1 nvidia.com/gpu beside amd.com/gpu"},
		{"GPUs of another kind alone", builders.TrainingJob("bert").GPUs(0), limits("amd.com/gpu"), ""},
		{"GPUs and another device", builders.TrainingJob("bert").GPUs(1), limits("rdma/hca"), ""},
		{"a checkpoint after the end", builders.TrainingJob("bert").Checkpoints(), func(s *mlv1.TrainingJobSpec) {
			epochs(s)
			s.Checkpoint.Frequency = 10
		}, "spec.checkpoint.frequency: 10 is more than spec.hyperparameters.epochs (5)"},
		{"a checkpoint after the last epoch", builders.TrainingJob("bert").Checkpoints(), func(s *mlv1.TrainingJobSpec) {
			epochs(s)
			s.Checkpoint.Frequency = 5
		}, ""},
		{"patience until the end", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) {
			epochs(s)
			s.SuccessPolicy = &mlv1.SuccessPolicy{EarlyStoppingPatience: ptr.To[int32](5)}
		}, "spec.successPolicy.earlyStoppingPatience: 5 is not below spec.hyperparameters.epochs (5)"},
		{"checkpoints that go with the job soon", builders.TrainingJob("bert").Checkpoints().TTL(60), func(s *mlv1.TrainingJobSpec) {
			s.Checkpoint.Storage.RetentionPolicy = mlv1.ClaimDelete
		}, "Delete deletes the checkpoints 60 s after the end"},
		{"a job that goes soon and leaves its checkpoints", builders.TrainingJob("bert").Checkpoints().TTL(60), func(*mlv1.TrainingJobSpec) {}, ""},
		{"an experiment without a key", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) { s.Monitoring.WandbProject = "bert" },
			"spec.monitoring.wandbSecretRef: is not set"},
		{"an experiment that stays here", builders.TrainingJob("bert"), func(s *mlv1.TrainingJobSpec) {
			s.Monitoring.WandbProject, s.Env = "bert", []corev1.EnvVar{{Name: "WANDB_MODE", Value: "offline"}}
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := mistakes(test.job.Spec(test.spec).Obj())
			if test.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.Contains(t, got[0], test.want)
			assert.NotContains(t, got[0], "hunter2", "the value is not repeated")
		})
	}
}
