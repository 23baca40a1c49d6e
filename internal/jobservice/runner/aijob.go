package runner

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	// namePrefix makes a job's ID, which may begin with a digit, the name of an AIJob.
	namePrefix = "job-"
	// gpuResource is what a GPU is to Kubernetes.
	gpuResource corev1.ResourceName = "nvidia.com/gpu"
	// backstop deletes an AIJob after its end that no service looks after any more.
	backstop = 7 * 24 * time.Hour
)

// nameOf the AIJob of a job. It is a function of the job's ID, so that the next holder of the lease finds the AIJob.
func nameOf(job *jobs.Job) types.NamespacedName {
	return types.NamespacedName{Namespace: job.Namespace, Name: namePrefix + job.ID}
}

// idOf returns the ID of the job that an AIJob was made for; empty: it is not one of the service's.
func idOf(aijob *aiplatformv1alpha1.AIJob) string {
	id := aijob.Labels[aiplatformv1alpha1.LabelServiceJob]
	if aijob.Name != namePrefix+id {
		return ""
	}
	return id
}

// isOfSpec says whether an AIJob runs what is wanted, and nothing else. What of a spec may be changed later does not tell.
func isOfSpec(aijob, wanted *aiplatformv1alpha1.AIJob) bool {
	is, should := whatRuns(&aijob.Spec), whatRuns(&wanted.Spec)
	return equality.Semantic.DeepEqual(configOf(&aijob.Spec), configOf(&wanted.Spec)) && equality.Semantic.DeepEqual(is, should)
}

// whatRuns is a spec without its config, and without what may be changed.
func whatRuns(spec *aiplatformv1alpha1.AIJobSpec) *aiplatformv1alpha1.AIJobSpec {
	spec = spec.DeepCopy()
	spec.Config, spec.Priority, spec.QueueName, spec.Preemptible, spec.Cancel = nil, nil, "", nil, nil
	spec.RetryPolicy, spec.TimeoutSeconds, spec.TTLSecondsAfterFinished = aiplatformv1alpha1.RetryPolicy{}, nil, nil
	if !ptr.Deref(spec.Gang.Enabled, false) {
		spec.Gang = aiplatformv1alpha1.Gang{}
	}
	return spec
}

// configOf is the config as the API server has it; nil without one, or for one that is no JSON.
func configOf(spec *aiplatformv1alpha1.AIJobSpec) (config any) {
	if spec.Config != nil {
		_ = json.Unmarshal(spec.Config.Raw, &config)
	}
	return config
}

// newAIJob returns the AIJob of a job. queue is what it names as its AIJobQueue; empty: none.
func newAIJob(job *jobs.Job, queue string) (*aiplatformv1alpha1.AIJob, error) {
	resources, err := resourcesOf(job.Resources)
	if err != nil {
		return nil, err
	}
	name := nameOf(job)
	aijob := &aiplatformv1alpha1.AIJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name,
			Labels:      map[string]string{aiplatformv1alpha1.LabelServiceJob: job.ID},
			Annotations: map[string]string{annotationQueued: queuedAt(job)},
		},
		Spec: aiplatformv1alpha1.AIJobSpec{
			JobType: aiplatformv1alpha1.JobType(job.Type), Priority: ptr.To(int32(job.Priority)), QueueName: queue,
			Image: job.Image, Resources: resources,
			RetryPolicy: aiplatformv1alpha1.RetryPolicy{
				MaxRetries: ptr.To(int32(job.Retry.MaxRetries)), BackoffMultiplier: job.Retry.BackoffMultiplier,
			},
			TTLSecondsAfterFinished: ptr.To(int32(backstop / time.Second)),
		},
	}
	if len(validation.IsValidLabelValue(job.Queue)) == 0 {
		aijob.Labels[aiplatformv1alpha1.LabelQueue] = job.Queue
	}
	if job.Submitter != "" {
		aijob.Annotations[aiplatformv1alpha1.AnnotationUser] = job.Submitter
	}
	if len(job.Config) > 0 && string(job.Config) != "null" {
		aijob.Spec.Config = &runtime.RawExtension{Raw: job.Config}
	}
	if job.Gang.Enabled {
		aijob.Spec.Gang = aiplatformv1alpha1.Gang{
			Enabled: ptr.To(true), MinMembers: int32(job.Gang.MinMembers), Topology: job.Gang.Topology,
		}
	}
	if job.Timeout > 0 {
		aijob.Spec.TimeoutSeconds = ptr.To(int64(math.Ceil(job.Timeout.Seconds())))
	}
	return aijob, nil
}

// resourcesOf requests what the job asks for. Memory is limited to that as well, so that a job that needs more ends instead of its
// neighbours; GPUs need a limit.
func resourcesOf(asked jobs.Resources) (*corev1.ResourceRequirements, error) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: asked.CPU, corev1.ResourceMemory: asked.Memory} {
		if text == "" {
			continue
		}
		amount, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("resources.%s: %q is not a valid quantity: write for example cpu: 500m, memory: 32Gi", name, text)
		}
		requests[name] = amount
		if name == corev1.ResourceMemory {
			limits[name] = amount
		}
	}
	if asked.GPU > 0 {
		amount := *resource.NewQuantity(int64(asked.GPU), resource.DecimalSI)
		requests[gpuResource], limits[gpuResource] = amount, amount
	}
	if len(requests) == 0 {
		return nil, nil
	}
	resources := &corev1.ResourceRequirements{Requests: requests}
	if len(limits) > 0 {
		resources.Limits = limits
	}
	return resources, nil
}

// trim leaves of an AIJob what the Dispatcher looks at: the cache holds every AIJob of the service.
func trim(object any) (any, error) {
	aijob, ok := object.(*aiplatformv1alpha1.AIJob)
	if !ok {
		return object, nil
	}
	annotations := map[string]string{}
	if value, set := aijob.Annotations[aiplatformv1alpha1.AnnotationRequeue]; set {
		annotations[aiplatformv1alpha1.AnnotationRequeue] = value
	}
	return &aiplatformv1alpha1.AIJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: aijob.Namespace, Name: aijob.Name, UID: aijob.UID, ResourceVersion: aijob.ResourceVersion,
			CreationTimestamp: aijob.CreationTimestamp, DeletionTimestamp: aijob.DeletionTimestamp,
			Labels: aijob.Labels, Annotations: annotations,
		},
		Spec: aiplatformv1alpha1.AIJobSpec{Cancel: aijob.Spec.Cancel},
		Status: aiplatformv1alpha1.AIJobStatus{
			Phase: aijob.Status.Phase, Reason: aijob.Status.Reason, Message: strings.Clone(aijob.Status.Message),
			CompletionTime: aijob.Status.CompletionTime, ExitCode: aijob.Status.ExitCode, Outputs: aijob.Status.Outputs,
			RetryCount: aijob.Status.RetryCount,
		},
	}, nil
}

// phaseOf is what the phase of an AIJob that has not ended means for its job, whose phase was last reported as told; empty: nothing new.
func phaseOf(aijob *aiplatformv1alpha1.AIJob, told jobs.Status) jobs.Status {
	phase := told
	switch aijob.Status.Phase {
	case aiplatformv1alpha1.AIJobScheduled:
		phase = jobs.Scheduled
	case aiplatformv1alpha1.AIJobRunning:
		phase = jobs.Running
	case aiplatformv1alpha1.AIJobRetrying:
		phase = jobs.Retrying
	case aiplatformv1alpha1.AIJobQueued:
		// It waits again after it lost its place.
		if told == jobs.Running || told == jobs.Scheduled {
			phase = jobs.Retrying
		}
	}
	if phase == told {
		return ""
	}
	return phase
}

// resultOf are the outputs as an object.
func resultOf(aijob *aiplatformv1alpha1.AIJob) json.RawMessage {
	if len(aijob.Status.Outputs) == 0 {
		return json.RawMessage("{}")
	}
	result, err := json.Marshal(aijob.Status.Outputs)
	if err != nil {
		panic(err) // a map of strings can be written
	}
	return result
}

func messageOf(aijob *aiplatformv1alpha1.AIJob) string {
	status := aijob.Status
	switch {
	case status.Message != "":
		return status.Message
	case status.ExitCode != nil:
		return fmt.Sprintf("the container ended with exit code %d", *status.ExitCode)
	case status.Reason != "":
		return status.Reason
	}
	return fmt.Sprintf("AIJob %s is %s", aijob.Name, status.Phase)
}
