package spot

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// jobChecks are the checks of SpotInstanceJobs.
type jobChecks struct{ Options }

func (jobChecks) kind() string                               { return "SpotInstanceJob" }
func (jobChecks) empty() *spotv1alpha1.SpotInstanceJob       { return &spotv1alpha1.SpotInstanceJob{} }
func (jobChecks) spec(job *spotv1alpha1.SpotInstanceJob) any { return job.Spec }

// templateField is the field of a SpotInstanceJob that is the Job of a replica.
const templateField = "spec.jobTemplate."

func jobSecrets(job *spotv1alpha1.SpotInstanceJob) []secret {
	list := []secret{{"spec.gcpCredentialsSecretRef", job.Spec.GCPCredentialsSecretRef, "no spot instance is created"}}
	if c := job.Spec.CheckpointConfig; c != nil {
		list = append(list, secret{"spec.checkpointConfig.checkpointRepoCredentialRef", c.CheckpointRepoCredentialRef, "no checkpoint can be pushed"})
	}
	return list
}

func (jobChecks) mistakes(job *spotv1alpha1.SpotInstanceJob) []metav1.StatusCause {
	return elsewhere(job.Namespace, jobSecrets(job))
}

func (jobChecks) hints(job *spotv1alpha1.SpotInstanceJob) (list []string) {
	if job.Spec.CheckpointConfig != nil && !job.HasOnePod() {
		list = append(list, "spec.checkpointConfig: no checkpoints are taken of a replica of several pods: "+
			"set parallelism and completions of spec.jobTemplate.spec to 1, or have the program save by itself")
	}
	return list
}

// references are what the job names beside Secrets of its pods: that one exists can only be seen with the permission to read it.
func (jobChecks) references(job *spotv1alpha1.SpotInstanceJob) []review.Reference {
	list := lookedUp(job.Namespace, jobSecrets(job))
	if ref := job.Spec.SpotInstanceVMRef; ref != nil {
		list = append(list, review.Reference{
			Field: "spec.spotInstanceVMRef.name", Kind: review.SpotInstanceVM, Namespace: job.Namespace, Name: ref.Name, Until: "no spot instance is created",
		})
	}
	return append(list, podReferences(job.Namespace, &job.Spec.JobTemplate.Spec.Template.Spec)...)
}

// podReferences are the objects without which the pods of a replica do not start.
func podReferences(namespace string, pod *corev1.PodSpec) (list []review.Reference) {
	const spec = templateField + "spec.template.spec."
	add := func(r review.Reference) {
		r.Field, r.Namespace = spec+r.Field, namespace
		list = append(list, r)
	}
	config := func(field, name, key string, optional *bool) {
		if !ptr.Deref(optional, false) {
			add(review.Reference{Field: field, Kind: review.ConfigMap, Name: name, Key: key, Until: "the pods cannot start"})
		}
	}
	containers := func(kind string, of []corev1.Container) {
		for n, container := range of {
			for i, source := range container.EnvFrom {
				if from := source.ConfigMapRef; from != nil {
					config(fmt.Sprintf("%s[%d].envFrom[%d].configMapRef", kind, n, i), from.Name, "", from.Optional)
				}
			}
			for i, variable := range container.Env {
				if source := variable.ValueFrom; source != nil && source.ConfigMapKeyRef != nil {
					from := source.ConfigMapKeyRef
					config(fmt.Sprintf("%s[%d].env[%d].valueFrom.configMapKeyRef", kind, n, i), from.Name, from.Key, from.Optional)
				}
			}
		}
	}
	containers("containers", pod.Containers)
	containers("initContainers", pod.InitContainers)
	if pod.PriorityClassName != "" {
		list = append(list, review.Reference{
			Field: spec + "priorityClassName", Kind: review.PriorityClass, Name: pod.PriorityClassName, Until: "the API server refuses the pods",
		})
	}
	if pod.ServiceAccountName != "" {
		add(review.Reference{Field: "serviceAccountName", Kind: review.ServiceAccount, Name: pod.ServiceAccountName, Until: "the API server refuses the pods"})
	}
	for n, volume := range pod.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil {
			add(review.Reference{
				Field: fmt.Sprintf("volumes[%d].persistentVolumeClaim.claimName", n), Kind: review.PersistentVolumeClaim, Name: source.ClaimName,
				Until: "the pods wait",
			})
		}
		if source := volume.ConfigMap; source != nil {
			config(fmt.Sprintf("volumes[%d].configMap.name", n), source.Name, "", source.Optional)
		}
	}
	return list
}

func (c jobChecks) ask(
	asker review.Asker, user authenticationv1.UserInfo, job *spotv1alpha1.SpotInstanceJob,
) ([]review.Question, func() ([]metav1.StatusCause, []string)) {
	try, trial := asker.Try("whether the replicas can be created", user, c.Replica(job))
	questions, taken := []review.Question{try}, true
	if job.Spec.CheckpointConfig != nil {
		questions = append(questions, review.Question{About: "spec.checkpointConfig", Ask: func(ctx context.Context) error {
			served, err := c.TakesCheckpoints(ctx)
			taken = served || err != nil
			return err
		}})
	}
	return questions, func() (refused []metav1.StatusCause, warnings []string) {
		for _, cause := range trial.Refused {
			refused = append(refused, inTermsOfTheJob(cause))
		}
		if !taken {
			warnings = append(warnings, "spec.checkpointConfig: the cluster serves no CheckpointBackup (migration.dcnlab.com): install a checkpoint agent; until then "+
				"no checkpoints are taken, and a lost replica starts from the beginning")
		}
		if trial.Forbidden != nil {
			warnings = append(warnings, fmt.Sprintf("the replicas cannot be created at present: %v: the operator tries again", trial.Forbidden))
		}
		for _, said := range trial.Said {
			warnings = append(warnings, "the Job of a replica: "+said)
		}
		return refused, warnings
	}
}

// inTermsOfTheJob puts what the API server says of the Job of a replica in terms of the SpotInstanceJob.
func inTermsOfTheJob(cause metav1.StatusCause) metav1.StatusCause {
	if strings.HasPrefix(cause.Field, "spec.") || strings.HasPrefix(cause.Field, "metadata.labels") || strings.HasPrefix(cause.Field, "metadata.annotations") {
		cause.Field = templateField + cause.Field
	} else {
		cause.Field = "the Job of a replica: " + cause.Field
	}
	cause.Message += ": correct it, because no replica could ever be created"
	return cause
}
