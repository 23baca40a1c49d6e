package build

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
)

// identity are variables by which workers know themselves and find each other. A wrong one ends or splits the training.
var identity = sets.New(
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
	"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID",
	"TF_CONFIG", "TF_TASK_INDEX", "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID",
	"RAY_ADDRESS", "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_NUM_WORKER", "DMLC_TASK_ID",
	"LAUNCH_HOSTS", "LAUNCH_REPLICAS", "LAUNCH_ADDRESS", "LAUNCH_PORT", "LAUNCH_KEY", "LAUNCH_PROCESSES", "LAUNCH_REPLICA",
)

// Environment is the worker contract's environment. The spec's own variables go before the contract's, but for those of identity that the
// framework needs: the webhook warns of them.
func Environment(job *mlv1.TrainingJob) []corev1.EnvVar {
	needed := frameworkOf(job).Env(Topology(job))
	own := slices.DeleteFunc(slices.Clone(job.Spec.Env), func(variable corev1.EnvVar) bool {
		return identity.Has(variable.Name) && slices.ContainsFunc(needed, func(of corev1.EnvVar) bool { return of.Name == variable.Name })
	})
	return override(slices.Concat([]corev1.EnvVar{
		framework.Text("TRAINING_JOB_NAME", job.Name),
		framework.Text("TRAINING_JOB_NAMESPACE", job.Namespace),
		framework.Text("MODEL", job.Spec.Model),
		framework.Text("DATASET", job.Spec.Dataset),
		framework.Text("FRAMEWORK", string(job.Spec.Framework)),
		framework.Number("METRICS_PORT", job.Spec.Monitoring.MetricsPort),
		framework.Text("DIST_BACKEND", Backend(job)),
	},
		threadEnv(job), hyperparameterEnv(job), checkpointEnv(job), SuccessEnv(job.Spec.SuccessPolicy), trackingEnv(job.Spec.Monitoring),
		tensorBoardEnv(job), needed,
	), own)
}

// given are the variables that have a value, from wherever.
func given(variables ...corev1.EnvVar) []corev1.EnvVar {
	return slices.DeleteFunc(variables, func(v corev1.EnvVar) bool { return v.Value == "" && v.ValueFrom == nil })
}

// optional is a value in words; empty for none.
func optional[T any](value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(*value)
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
	of := WorkerResources(job)
	cpus, ok := of.Limits[corev1.ResourceCPU]
	if !ok {
		cpus, ok = of.Requests[corev1.ResourceCPU]
	}
	if !ok {
		return nil
	}
	processes := max(1, int64(GpusPerWorker(job)))
	threads := max(1, cpus.Value()/processes) // Value rounds up
	return []corev1.EnvVar{framework.Text("OMP_NUM_THREADS", strconv.FormatInt(threads, 10))}
}

func hyperparametersJSON(job *mlv1.TrainingJob) string {
	if job.Spec.Hyperparameters == nil {
		return "{}"
	}
	text, _ := json.Marshal(job.Spec.Hyperparameters) // came from JSON, so it has a JSON form
	return string(text)
}

func hyperparameterEnv(job *mlv1.TrainingJob) []corev1.EnvVar {
	h := ptr.Deref(job.Spec.Hyperparameters, mlv1.Hyperparameters{})
	env := given(
		framework.Text("HYPERPARAMETERS", hyperparametersJSON(job)),
		framework.Text("LEARNING_RATE", optional(h.LearningRate)),
		framework.Text("BATCH_SIZE", optional(h.BatchSize)),
		framework.Text("EPOCHS", optional(h.Epochs)),
		framework.Text("OPTIMIZER", h.Optimizer),
		framework.Text("WARMUP_STEPS", optional(h.WarmupSteps)),
		framework.Text("GRADIENT_ACCUMULATION_STEPS", optional(h.GradientAccumulationSteps)),
		framework.Text("MIXED_PRECISION", optional(h.MixedPrecision)),
	)
	for _, name := range slices.Sorted(maps.Keys(h.AdditionalParams)) {
		env = append(env, framework.Text(VariableName(name), string(h.AdditionalParams[name])))
	}
	return env
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
			framework.Text("CHECKPOINT_DIR", checkpointDir(job)),
			framework.Number("CHECKPOINT_FREQUENCY", max(job.Spec.Checkpoint.Frequency, 1)),
			framework.Number("CHECKPOINT_RETENTION", retention),
		)
		if interval := job.Spec.Checkpoint.Interval; interval != nil {
			env = append(env, framework.Text("CHECKPOINT_INTERVAL", strconv.FormatFloat(interval.Seconds(), 'f', -1, 64)))
		}
	}
	if from := ResumeDir(job); from != "" {
		env = append(env, resumeFromEnv(job, from)...)
	}
	return env
}

// resumeFromEnv says from where the training resumes, and whether it may begin without a checkpoint.
func resumeFromEnv(job *mlv1.TrainingJob, from string) []corev1.EnvVar {
	env := []corev1.EnvVar{framework.Text("RESUME_FROM", from)}
	if mayResumeFromNothing(job) {
		env = append(env, framework.Text("RESUME_OPTIONAL", "true"))
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
			framework.Text("TARGET_METRIC", target.Name),
			framework.Text("TARGET_VALUE", fmt.Sprint(ptr.Deref(target.Value, 0))),
			framework.Text("TARGET_MODE", target.Mode),
		)
	}
	return append(env, given(framework.Text("EARLY_STOPPING_PATIENCE", optional(policy.EarlyStoppingPatience)))...)
}

func trackingEnv(monitoring mlv1.Monitoring) []corev1.EnvVar {
	env := given(framework.Text("MLFLOW_TRACKING_URI", monitoring.MLflowTrackingURI), framework.Text("WANDB_PROJECT", monitoring.WandbProject))
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
