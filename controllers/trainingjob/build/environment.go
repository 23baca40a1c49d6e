package build

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// Environment is the worker contract's environment, with the spec's own variables in front of the contract's.
func Environment(job *mlv1.TrainingJob) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "TRAINING_JOB_NAME", Value: job.Name},
		{Name: "TRAINING_JOB_NAMESPACE", Value: job.Namespace},
		{Name: "MODEL", Value: job.Spec.Model},
		{Name: "DATASET", Value: job.Spec.Dataset},
		{Name: "FRAMEWORK", Value: string(job.Spec.Framework)},
		{Name: "METRICS_PORT", Value: strconv.Itoa(int(job.Spec.Monitoring.MetricsPort))},
		{Name: "DIST_BACKEND", Value: Backend(job)},
	}
	env = append(env, threadEnv(job)...)
	env = append(env, hyperparameterEnv(job)...)
	env = append(env, checkpointEnv(job)...)
	env = append(env, SuccessEnv(job.Spec.SuccessPolicy)...)
	env = append(env, trackingEnv(job.Spec.Monitoring)...)
	env = append(env, tensorBoardEnv(job)...)
	env = append(env, frameworkEnv(job)...)
	return override(env, job.Spec.Env)
}

// override returns the variables with those of the same name replaced and the others added, in their order. A
// variable may refer to one before it, so those of the contract come first.
func override(env, with []corev1.EnvVar) []corev1.EnvVar {
	names := map[string]bool{}
	for _, variable := range with {
		names[variable.Name] = true
	}
	env = slices.DeleteFunc(env, func(variable corev1.EnvVar) bool { return names[variable.Name] })
	return append(env, with...)
}

// Backend of collective communication: the spec's, or the usual one for the framework and the hardware.
func Backend(job *mlv1.TrainingJob) string {
	switch {
	case job.Spec.Networking.Backend != "":
		return job.Spec.Networking.Backend
	case job.Spec.Framework == mlv1.FrameworkMPI:
		return "mpi"
	case GpusPerWorker(job) > 0:
		return "nccl"
	default:
		return "gloo"
	}
}

// threadEnv gives each process of a worker the threads that its share of the worker's CPUs can run. Numeric libraries
// start one for each processor of the node otherwise, and workers on a node hinder each other.
func threadEnv(job *mlv1.TrainingJob) []corev1.EnvVar {
	if job.Spec.Resources == nil {
		return nil
	}
	cpus, ok := job.Spec.Resources.Limits[corev1.ResourceCPU]
	if !ok {
		cpus, ok = job.Spec.Resources.Requests[corev1.ResourceCPU]
	}
	if !ok {
		return nil
	}
	processes := max(1, int64(GpusPerWorker(job)))
	threads := max(1, cpus.Value()/processes) // Value rounds up
	return []corev1.EnvVar{{Name: "OMP_NUM_THREADS", Value: strconv.FormatInt(threads, 10)}}
}

func hyperparametersJSON(job *mlv1.TrainingJob) string {
	if job.Spec.Hyperparameters == nil {
		return "{}"
	}
	text, _ := json.Marshal(job.Spec.Hyperparameters) // came from JSON, so it has a JSON form
	return string(text)
}

func hyperparameterEnv(job *mlv1.TrainingJob) []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: "HYPERPARAMETERS", Value: hyperparametersJSON(job)}}
	h := job.Spec.Hyperparameters
	if h == nil {
		return env
	}
	if h.LearningRate != nil {
		env = append(env, corev1.EnvVar{Name: "LEARNING_RATE", Value: strconv.FormatFloat(*h.LearningRate, 'g', -1, 64)})
	}
	env = appendInt(env, "BATCH_SIZE", h.BatchSize)
	env = appendInt(env, "EPOCHS", h.Epochs)
	if h.Optimizer != "" {
		env = append(env, corev1.EnvVar{Name: "OPTIMIZER", Value: h.Optimizer})
	}
	env = appendInt(env, "WARMUP_STEPS", h.WarmupSteps)
	env = appendInt(env, "GRADIENT_ACCUMULATION_STEPS", h.GradientAccumulationSteps)
	if h.MixedPrecision != nil {
		env = append(env, corev1.EnvVar{Name: "MIXED_PRECISION", Value: strconv.FormatBool(*h.MixedPrecision)})
	}
	for _, name := range slices.Sorted(maps.Keys(h.AdditionalParams)) {
		env = append(env, corev1.EnvVar{Name: VariableName(name), Value: string(h.AdditionalParams[name])})
	}
	return env
}

func appendInt(env []corev1.EnvVar, name string, value *int32) []corev1.EnvVar {
	if value == nil {
		return env
	}
	return append(env, corev1.EnvVar{Name: name, Value: strconv.Itoa(int(*value))})
}

var (
	// afterLower is where a word begins after a lower-case letter or a digit, lastUpper where one begins after an acronym.
	afterLower = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	lastUpper  = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
	separators = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// VariableName turns a parameter's name into upper snake case, as the worker contract says: weight_decay and weightDecay
// become WEIGHT_DECAY, useEMAModel becomes USE_EMA_MODEL.
func VariableName(parameter string) string {
	name := afterLower.ReplaceAllString(parameter, "${1}_${2}")
	name = lastUpper.ReplaceAllString(name, "${1}_${2}")
	return strings.ToUpper(separators.ReplaceAllString(name, "_"))
}

func checkpointEnv(job *mlv1.TrainingJob) []corev1.EnvVar {
	var env []corev1.EnvVar
	if CheckpointsEnabled(job) {
		retention := job.Spec.Checkpoint.Retention
		if UsesStore(job) {
			retention = 0 // the agent alone knows which are in the store
		}
		env = append(env,
			corev1.EnvVar{Name: "CHECKPOINT_DIR", Value: checkpointDir(job)},
			corev1.EnvVar{Name: "CHECKPOINT_FREQUENCY", Value: strconv.Itoa(int(max(job.Spec.Checkpoint.Frequency, 1)))},
			corev1.EnvVar{Name: "CHECKPOINT_RETENTION", Value: strconv.Itoa(int(retention))},
		)
		if interval := job.Spec.Checkpoint.Interval; interval != nil {
			seconds := strconv.FormatFloat(interval.Seconds(), 'f', -1, 64)
			env = append(env, corev1.EnvVar{Name: "CHECKPOINT_INTERVAL", Value: seconds})
		}
	}
	if from := ResumeDir(job); from != "" {
		env = append(env, corev1.EnvVar{Name: "RESUME_FROM", Value: from})
		if ResumeFrom(job) == ResumeLatest {
			env = append(env, corev1.EnvVar{Name: "RESUME_OPTIONAL", Value: "true"})
		}
	}
	return env
}

// SuccessEnv hands the success policy to the worker, which alone can end the training between two steps.
func SuccessEnv(policy *mlv1.SuccessPolicy) []corev1.EnvVar {
	if policy == nil {
		return nil
	}
	var env []corev1.EnvVar
	if target := TargetOf(policy); target != nil {
		env = append(env,
			corev1.EnvVar{Name: "TARGET_METRIC", Value: target.Name},
			corev1.EnvVar{Name: "TARGET_VALUE", Value: strconv.FormatFloat(ptr.Deref(target.Value, 0), 'g', -1, 64)},
			corev1.EnvVar{Name: "TARGET_MODE", Value: target.Mode},
		)
	}
	return appendInt(env, "EARLY_STOPPING_PATIENCE", policy.EarlyStoppingPatience)
}

func trackingEnv(monitoring mlv1.Monitoring) []corev1.EnvVar {
	var env []corev1.EnvVar
	if monitoring.MLflowTrackingURI != "" {
		env = append(env, corev1.EnvVar{Name: "MLFLOW_TRACKING_URI", Value: monitoring.MLflowTrackingURI})
	}
	if monitoring.WandbProject != "" {
		env = append(env, corev1.EnvVar{Name: "WANDB_PROJECT", Value: monitoring.WandbProject})
	}
	if monitoring.WandbSecretRef != nil {
		env = append(env, corev1.EnvVar{
			Name: "WANDB_API_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: monitoring.WandbSecretRef},
		})
	}
	return env
}

// Accuracy is the metric that is watched when the policy names none.
const Accuracy = "accuracy"

// TargetOf is the target of a success policy; nil when it has none.
func TargetOf(policy *mlv1.SuccessPolicy) *mlv1.TargetMetric {
	target := policy.TargetMetric
	if policy.TargetAccuracy != nil {
		target = &mlv1.TargetMetric{Name: Accuracy, Value: policy.TargetAccuracy}
	}
	if target == nil {
		return nil
	}
	of := target.DeepCopy()
	if of.Mode == "" {
		of.Mode = "max"
	}
	return of
}
