package trainingjob

import (
	"slices"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// hideSecrets takes secrets out of the words of others that a status repeats: a worker's termination message, messages of the
// kubelet and of the API server. Secrets that the job refers to are never read and so cannot be known; those that it
// has as plain variables are known.
func hideSecrets(job *mlv1.TrainingJob, status *mlv1.TrainingJobStatus) {
	known := plainSecrets(job)
	if status.FailureReason != job.Status.FailureReason {
		status.FailureReason = redact.Text(status.FailureReason, known...)
	}
	if of := status.Admission; of != nil && (job.Status.Admission == nil || of.Releasing != job.Status.Admission.Releasing) {
		of.Releasing = redact.Text(of.Releasing, known...)
	}
	said := map[string]bool{}
	for _, condition := range job.Status.Conditions {
		said[condition.Message] = true
	}
	for i := range status.Conditions {
		if message := &status.Conditions[i].Message; !said[*message] {
			*message = redact.Text(*message, known...)
		}
	}
}

// plainSecrets are the values that the spec gives in plain text to variables and parameters whose name says that they
// are secret.
func plainSecrets(job *mlv1.TrainingJob) []string {
	var values []string
	variables := slices.Clone(job.Spec.Env)
	for _, container := range podbuild.InitContainers(&job.Spec.Settings) {
		variables = append(variables, container.Env...)
	}
	for _, variable := range variables {
		if variable.Value != "" && redact.NamesSecret(variable.Name) {
			values = append(values, variable.Value)
		}
	}
	if h := job.Spec.Hyperparameters; h != nil {
		for name, value := range h.AdditionalParams {
			if redact.NamesSecret(name) {
				values = append(values, string(value))
			}
		}
	}
	return values
}
