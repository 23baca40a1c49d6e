package build

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func replicaVariable(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
	}}}
}

func TestTheEnvironmentOfTheSmallestJob(t *testing.T) {
	want := []corev1.EnvVar{
		{Name: "TRAINING_JOB_NAME", Value: "bert"},
		{Name: "TRAINING_JOB_NAMESPACE", Value: "default"},
		{Name: "MODEL", Value: "resnet50"},
		{Name: "DATASET", Value: "cifar10"},
		{Name: "FRAMEWORK", Value: "pytorch"},
		{Name: "METRICS_PORT", Value: "8080"},
		{Name: "DIST_BACKEND", Value: "gloo"},
		{Name: "HYPERPARAMETERS", Value: "{}"},
		{Name: "MASTER_ADDR", Value: "bert-training-0.bert-headless"},
		{Name: "MASTER_PORT", Value: "29500"},
		{Name: "WORLD_SIZE", Value: "1"},
		replicaVariable("RANK"),
		{Name: "PET_NNODES", Value: "1"},
		{Name: "PET_NPROC_PER_NODE", Value: "1"},
		replicaVariable("PET_NODE_RANK"),
		{Name: "PET_MASTER_ADDR", Value: "bert-training-0.bert-headless"},
		{Name: "PET_MASTER_PORT", Value: "29500"},
		{Name: "LOCAL_RANK", Value: "0"},
		{Name: "LOCAL_WORLD_SIZE", Value: "1"},
	}
	assert.Empty(t, cmp.Diff(want, Environment(builders.TrainingJob("bert").Obj())))
}

func TestEachProcessHasTheThreadsThatItsCPUsCanRun(t *testing.T) {
	cpus := func(request, limit string) *corev1.ResourceRequirements {
		resources := &corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
		if request != "" {
			resources.Requests[corev1.ResourceCPU] = resource.MustParse(request)
		}
		if limit != "" {
			resources.Limits[corev1.ResourceCPU] = resource.MustParse(limit)
		}
		return resources
	}
	for name, test := range map[string]struct {
		resources *corev1.ResourceRequirements
		gpus      int32
		want      string
	}{
		"nothing said":               {resources: nil},
		"no CPU said":                {resources: cpus("", "")},
		"a request":                  {resources: cpus("4", ""), want: "4"},
		"a limit above the request":  {resources: cpus("2", "8"), want: "8"},
		"less than one":              {resources: cpus("100m", ""), want: "1"},
		"more than one and a half":   {resources: cpus("1500m", ""), want: "2"},
		"a process for each GPU":     {resources: cpus("16", ""), gpus: 4, want: "4"},
		"more processes than CPUs":   {resources: cpus("2", ""), gpus: 8, want: "1"},
		"GPUs, and CPUs left unsaid": {resources: cpus("", ""), gpus: 8},
	} {
		t.Run(name, func(t *testing.T) {
			job := builders.TrainingJob("bert").GPUs(test.gpus).Spec(func(s *mlv1.TrainingJobSpec) { s.Resources = test.resources }).Obj()
			got := ""
			for _, variable := range Environment(job) {
				if variable.Name == "OMP_NUM_THREADS" {
					got = variable.Value
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestTheEnvironmentOfAFullJob(t *testing.T) {
	secret := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "wandb"}, Key: "key"}
	job := builders.TrainingJob("bert").Workers(2).GPUs(4).Checkpoints().ResumeFrom("latest").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Hyperparameters = &mlv1.Hyperparameters{
			LearningRate: ptr.To(1e-4), BatchSize: ptr.To[int32](128), Epochs: ptr.To[int32](100), Optimizer: "adamw",
			WarmupSteps: ptr.To[int32](1000), GradientAccumulationSteps: ptr.To[int32](4), MixedPrecision: ptr.To(true),
			AdditionalParams: map[string]mlv1.ParamValue{"weight_decay": "0.01", "labelSmoothing": "0.1"},
		}
		s.Checkpoint.Interval = &metav1.Duration{Duration: 90 * time.Second}
		s.SuccessPolicy = &mlv1.SuccessPolicy{TargetAccuracy: ptr.To(0.95), EarlyStoppingPatience: ptr.To[int32](5)}
		s.Monitoring.MLflowTrackingURI, s.Monitoring.WandbProject, s.Monitoring.WandbSecretRef = "http://mlflow:5000", "bert", secret
		s.Networking.MasterPort = 23456
		s.Env = []corev1.EnvVar{
			{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: "MASTER_PORT", Value: "1234"}, {Name: "URL", Value: "$(MODEL):$(MASTER_PORT)"},
		}
	}).Obj()
	want := []corev1.EnvVar{
		{Name: "TRAINING_JOB_NAME", Value: "bert"},
		{Name: "TRAINING_JOB_NAMESPACE", Value: "default"},
		{Name: "MODEL", Value: "resnet50"},
		{Name: "DATASET", Value: "cifar10"},
		{Name: "FRAMEWORK", Value: "pytorch"},
		{Name: "METRICS_PORT", Value: "8080"},
		{Name: "DIST_BACKEND", Value: "nccl"},
		{Name: "HYPERPARAMETERS", Value: `{"learningRate":0.0001,"batchSize":128,"epochs":100,"optimizer":"adamw","warmupSteps":1000,` +
			`"gradientAccumulationSteps":4,"mixedPrecision":true,"additionalParams":{"labelSmoothing":"0.1","weight_decay":"0.01"}}`},
		{Name: "LEARNING_RATE", Value: "0.0001"},
		{Name: "BATCH_SIZE", Value: "128"},
		{Name: "EPOCHS", Value: "100"},
		{Name: "OPTIMIZER", Value: "adamw"},
		{Name: "WARMUP_STEPS", Value: "1000"},
		{Name: "GRADIENT_ACCUMULATION_STEPS", Value: "4"},
		{Name: "MIXED_PRECISION", Value: "true"},
		{Name: "LABEL_SMOOTHING", Value: "0.1"},
		{Name: "WEIGHT_DECAY", Value: "0.01"},
		{Name: "CHECKPOINT_DIR", Value: "/checkpoints/bert/uid-of-bert"},
		{Name: "CHECKPOINT_FREQUENCY", Value: "1"},
		{Name: "CHECKPOINT_RETENTION", Value: "3"},
		{Name: "CHECKPOINT_INTERVAL", Value: "90"},
		{Name: "RESUME_FROM", Value: "/checkpoints/bert"}, {Name: "RESUME_OPTIONAL", Value: "true"},
		{Name: "TARGET_METRIC", Value: "accuracy"},
		{Name: "TARGET_VALUE", Value: "0.95"},
		{Name: "TARGET_MODE", Value: "max"},
		{Name: "EARLY_STOPPING_PATIENCE", Value: "5"},
		{Name: "MLFLOW_TRACKING_URI", Value: "http://mlflow:5000"},
		{Name: "WANDB_PROJECT", Value: "bert"},
		{Name: "WANDB_API_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: secret}},
		{Name: "MASTER_ADDR", Value: "bert-training-0.bert-headless"},
		{Name: "MASTER_PORT", Value: "23456"},
		{Name: "WORLD_SIZE", Value: "2"},
		replicaVariable("RANK"),
		{Name: "PET_NNODES", Value: "2"},
		{Name: "PET_NPROC_PER_NODE", Value: "4"},
		replicaVariable("PET_NODE_RANK"),
		{Name: "PET_MASTER_ADDR", Value: "bert-training-0.bert-headless"},
		{Name: "PET_MASTER_PORT", Value: "23456"},
		{Name: "NCCL_DEBUG", Value: "INFO"},
		{Name: "URL", Value: "$(MODEL):$(MASTER_PORT)"},
	}
	assert.Empty(t, cmp.Diff(want, Environment(job)))
}

func TestVariablesByWhichWorkersFindEachOtherAreTheOperators(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Env = []corev1.EnvVar{
			{Name: "RANK", Value: "7"}, {Name: "WORLD_SIZE", Value: "1"}, {Name: "MASTER_ADDR", Value: "localhost"}, {Name: "EPOCHS", Value: "3"},
			{Name: "TF_CONFIG", Value: "{}"},
		}
	}).Obj()
	env := map[string]corev1.EnvVar{}
	for _, variable := range Environment(job) {
		env[variable.Name] = variable
	}
	assert.Equal(t, "2", env["WORLD_SIZE"].Value)
	assert.NotNil(t, env["RANK"].ValueFrom)
	assert.Equal(t, "bert-training-0", strings.Split(env["MASTER_ADDR"].Value, ".")[0])
	assert.Equal(t, "3", env["EPOCHS"].Value, "others are the user's")
	assert.Equal(t, "{}", env["TF_CONFIG"].Value, "PyTorch needs none")
}

func TestTargetMetric(t *testing.T) {
	env := SuccessEnv(&mlv1.SuccessPolicy{TargetMetric: &mlv1.TargetMetric{Name: "loss", Value: ptr.To(1e-9), Mode: "min"}})
	assert.Equal(t, []corev1.EnvVar{
		{Name: "TARGET_METRIC", Value: "loss"}, {Name: "TARGET_VALUE", Value: "1e-09"}, {Name: "TARGET_MODE", Value: "min"},
	}, env)
}

func TestVariableName(t *testing.T) {
	for parameter, want := range map[string]string{
		"weight_decay": "WEIGHT_DECAY", "weightDecay": "WEIGHT_DECAY", "weight-decay": "WEIGHT_DECAY", "weight.decay": "WEIGHT_DECAY",
		"beta1": "BETA1", "LR": "LR", "useEMA": "USE_EMA", "_x": "_X",
		"useEMAModel": "USE_EMA_MODEL", "beta2Decay": "BETA2_DECAY", "a.-b": "A_B", "x__y": "X_Y",
	} {
		assert.Equal(t, want, VariableName(parameter), parameter)
	}
}

func TestBackendOfCollectiveCommunication(t *testing.T) {
	mpi := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.Backend = "mpi" })
	assert.Equal(t, "gloo", Backend(builders.TrainingJob("bert").GPUs(0).Obj()))
	assert.Equal(t, "nccl", Backend(builders.TrainingJob("bert").GPUs(1).Obj()))
	assert.Equal(t, "mpi", Backend(mpi.Obj()))
}

func TestWhatAWorkerResumesFrom(t *testing.T) {
	tests := map[string]struct {
		job  *builders.TrainingJobBuilder
		want string
		need []string // claims that must exist
	}{
		"nothing without checkpoints":      {job: builders.TrainingJob("bert")},
		"nothing unless it says so":        {job: builders.TrainingJob("bert").Checkpoints()},
		"the newest of a job of this name": {job: builders.TrainingJob("bert").Checkpoints().ResumeFrom("latest"), want: "/checkpoints/bert"},
		"a path in the job's volume": {
			job: builders.TrainingJob("bert").Claim("shared").ResumeFrom("/old/uid/checkpoint-epoch-3"), want: "/checkpoints/old/uid/checkpoint-epoch-3",
			need: []string{"shared"},
		},
		"a path in another claim": {
			job: builders.TrainingJob("bert").Checkpoints().ResumeFrom("pvc://old/run/checkpoint-epoch-3"), want: "/resume/run/checkpoint-epoch-3",
			need: []string{"old"},
		},
		"all of another claim": {
			job: builders.TrainingJob("bert").Checkpoints().ResumeFrom("pvc://old"), want: "/resume", need: []string{"old"},
		},
		"a path in the same claim": {
			job: builders.TrainingJob("bert").Claim("shared").ResumeFrom("pvc://shared/run"), want: "/resume/run", need: []string{"shared"},
		},
		"a path in the claim that the operator makes": {
			job: builders.TrainingJob("bert").Checkpoints().ResumeFrom("pvc://bert-checkpoints/run"), want: "/resume/run",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			assert.Equal(t, test.want, ResumeDir(job))
			assert.Equal(t, test.need, NamedClaims(job))
		})
	}
}
