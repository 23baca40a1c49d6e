package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// longestJobName is what an AIJob may have, and shortestStage what is kept of a stage's name in it at least.
const (
	longestJobName = 50
	shortestStage  = 18
)

// jobName is the name of the AIJob of a stage. It is the same whenever it is asked for, so that a stage cannot be started
// twice; the digits at its end tell it from those of all other workflows, runs and stages.
func jobName(workflow *aiplatformv1alpha1.AgentWorkflow, run int32, stage aiplatformv1alpha1.StageName) string {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s", workflow.UID, run, stage))
	digits, number := hex.EncodeToString(hash[:4]), strconv.Itoa(int(run))
	first := workflow.Name
	if first[0] >= '0' && first[0] <= '9' { // a name of a pod's may not begin with a digit
		first = "w" + first
	}
	room := longestJobName - len(number) - len(digits) - 3
	last := clip(string(stage), max(shortestStage, room-len(first)))
	first = clip(first, room-len(last))
	return strings.Join([]string{first, number, last, digits}, "-")
}

// clip shortens a name, so that it does not end in a hyphen.
func clip(name string, most int) string {
	if len(name) > most {
		name = name[:most]
	}
	return strings.TrimRight(name, "-")
}

func buildJob(o observed, run int32, stage *aiplatformv1alpha1.Stage, inputs []workflowspec.Input) *aiplatformv1alpha1.AIJob {
	agent := o.agents[stage.Agent].DeepCopy().Spec
	job := &aiplatformv1alpha1.AIJob{
		ObjectMeta: metav1.ObjectMeta{
			Name: jobName(o.workflow, run, stage.Name), Namespace: o.workflow.Namespace,
			Labels: map[string]string{
				aiplatformv1alpha1.LabelWorkflow: o.workflow.Name, aiplatformv1alpha1.LabelStage: string(stage.Name),
				aiplatformv1alpha1.LabelWorkflowRun: strconv.Itoa(int(run)),
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(o.workflow, aiplatformv1alpha1.GroupVersion.WithKind(kindAgentWorkflow)),
			},
		},
		Spec: aiplatformv1alpha1.AIJobSpec{
			JobType: agent.JobType, Image: agent.Image, Command: agent.Command, Args: agent.Args, Env: agent.Env,
			Resources: agent.Resources, RetryPolicy: agent.RetryPolicy,
			NodeSelector: agent.NodeSelector, Tolerations: agent.Tolerations, ServiceAccountName: agent.ServiceAccountName,
			PodOptions: agent.PodOptions, Settings: agent.Settings, Source: agent.Source,
			QueueName: o.workflow.Spec.QueueName, Priority: o.workflow.Spec.Priority,
		},
	}
	if job.Spec.QueueName != "" {
		job.Spec.PriorityClassName = "" // the queue has one
	}
	if agent.TimeoutSeconds != nil {
		job.Spec.TimeoutSeconds = ptr.To(min(*agent.TimeoutSeconds, aiplatformv1alpha1.MaxTimeoutSeconds))
	}
	if user := o.workflow.Annotations[aiplatformv1alpha1.AnnotationUser]; user != "" {
		job.Annotations = map[string]string{aiplatformv1alpha1.AnnotationUser: user}
	}
	// The inputs come last: an agent's own variables cannot refer to what another program has yielded.
	for _, input := range inputs {
		job.Spec.Env = append(job.Spec.Env, corev1.EnvVar{Name: input.Name, Value: workflowspec.EnvValue(input.Value)})
	}
	return job
}

// runOf is the number of the start for which an AIJob was made; 0 when the label was removed.
func runOf(job *aiplatformv1alpha1.AIJob) int32 {
	run, err := strconv.ParseInt(job.Labels[aiplatformv1alpha1.LabelWorkflowRun], 10, 32)
	if err != nil {
		return 0
	}
	return int32(run)
}

func stageEnded(stage *aiplatformv1alpha1.StageStatus) bool {
	is := stage.Phase
	return is == aiplatformv1alpha1.StageSucceeded || is == aiplatformv1alpha1.StageFailed || is == aiplatformv1alpha1.StageSkipped
}
