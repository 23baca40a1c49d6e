package build

import (
	"fmt"
	"math"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
)

const (
	// lastCall is how many seconds the workers wait for others, once there are enough of them, before they go on.
	lastCall = 10
	// elasticRestarts is how often a worker's agent itself brings its processes together with the others again before
	// it gives up and its pod fails.
	elasticRestarts = 10
)

// ResizesInPlace says whether new workers of the job shall come and go one by one. Only programs that torchrun, or this
// version's own worker, starts again in a world of another size can do that. Of a Job that exists resizable tells.
func ResizesInPlace(job *mlv1.TrainingJob, settings Settings) bool {
	elastic := job.Spec.Elastic
	if elastic == nil || job.Spec.Framework != mlv1.FrameworkPyTorch || LocalQueue(job) != "" || QueueName(job) != "" {
		return false // a queue admits a job as a whole, in one size
	}
	switch elastic.RescalePolicy {
	case mlv1.RescaleInPlace:
		return true
	case mlv1.RescaleRestart:
		return false
	}
	program := slices.Concat(job.Spec.Command, job.Spec.Args)
	if len(program) == 0 {
		return job.Spec.Image == "" || job.Spec.Image == settings.WorkerImage
	}
	return slices.ContainsFunc(program, func(word string) bool {
		return strings.Contains(word, "torchrun") || strings.Contains(word, "torch.distributed.run") ||
			strings.Contains(word, "training_worker")
	})
}

// ElasticProblem names the field for which the job cannot be resized in the way that it asks for, and says why; empty
// when it can.
func ElasticProblem(job *mlv1.TrainingJob) (field, message string) {
	const policy = "spec.elastic.rescalePolicy"
	if job.Spec.Elastic == nil || job.Spec.Elastic.RescalePolicy != mlv1.RescaleInPlace {
		return "", ""
	}
	if job.Spec.Framework != mlv1.FrameworkPyTorch {
		return policy, fmt.Sprintf("InPlace needs framework pytorch, but spec.framework is %s: use Restart", job.Spec.Framework)
	}
	if LocalQueue(job) != "" {
		return policy, "InPlace does not go with a queue, which admits a job as a whole: use Restart, or remove the label " + KueueQueueLabel
	}
	if QueueName(job) != "" {
		return policy, "InPlace does not go with spec.scheduling.queueName, which admits a job as a whole: use Restart, or leave out queueName"
	}
	return "", ""
}

// elasticSpec lets the pods of an elastic job come and go: a failed one is replaced without failing the Job, since
// whether the job goes on is for the operator to say, and the end of replica 0 is the end of the training.
func elasticSpec(job *mlv1.TrainingJob, settings Settings, spec *batchv1.JobSpec) {
	if !ResizesInPlace(job, settings) {
		return
	}
	spec.BackoffLimit, spec.BackoffLimitPerIndex = nil, ptr.To[int32](math.MaxInt32)
	spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		}},
	}}
	spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0")}}}
	for i := range spec.Template.Spec.Containers {
		if container := &spec.Template.Spec.Containers[i]; container.Name == WorkerContainer {
			container.Env = elasticEnv(job, container.Env)
		}
	}
}

// NotElastic are the variables that fix the rank of a worker. An elastic worker gets its rank from the rendezvous.
var NotElastic = []string{"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PET_MASTER_ADDR", "PET_MASTER_PORT"}

// elasticEnv is the environment with torchrun's elastic rendezvous in place of fixed ranks. What the spec sets wins.
//
// Source: https://docs.pytorch.org/docs/stable/elastic/run.html.
func elasticEnv(job *mlv1.TrainingJob, env []corev1.EnvVar) []corev1.EnvVar {
	env = slices.DeleteFunc(slices.Clone(env), func(variable corev1.EnvVar) bool {
		return slices.Contains(NotElastic, variable.Name)
	})
	topology := Topology(job)
	return override(override(env, []corev1.EnvVar{
		framework.Text("PET_NNODES", fmt.Sprintf("%d:%d", job.Spec.Elastic.MinWorkers, job.Spec.Elastic.MaxWorkers)),
		framework.Text("PET_RDZV_BACKEND", "c10d"),
		framework.Text("PET_RDZV_ENDPOINT", topology.Master()),
		framework.Text("PET_RDZV_ID", topology.ID),
		framework.Text("PET_RDZV_CONF", fmt.Sprintf("last_call_timeout=%d", lastCall)),
		framework.Number("PET_MAX_RESTARTS", elasticRestarts),
		framework.Number("PET_MONITOR_INTERVAL", 1),
	}), job.Spec.Env)
}
