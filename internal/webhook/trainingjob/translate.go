package trainingjob

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	podFields    = "spec.template.spec."
	workerFields = podFields + "containers[0]."
)

// sources are the fields of a TrainingJob that fields of its workers' Job are taken from.
var sources = []struct{ of, from string }{
	{workerFields + "resources", "spec.resources"},
	{workerFields + "image", "spec.image"},
	{workerFields + "command", "spec.command"},
	{workerFields + "args", "spec.args"},
	{podFields + "nodeSelector", "spec.scheduling.nodeSelector"},
	{podFields + "affinity", "spec.scheduling.affinity"},
	{podFields + "tolerations", "spec.scheduling.tolerations"},
	{podFields + "priorityClassName", "spec.scheduling.priority"},
	{podFields + "schedulerName", "spec.scheduling.schedulerName"},
	{podFields + "securityContext", "spec.securityContext"},
	{podFields + "imagePullSecrets", "spec.imagePullSecrets"},
	{podFields + "serviceAccountName", "spec.serviceAccountName"},
}

var variableField = regexp.MustCompile(`^` + regexp.QuoteMeta(workerFields) + `env\[(\d+)\](.*)$`)

// inTermsOf puts what the API server says of the workers' Job in terms of the TrainingJob, whose fields the user knows.
func inTermsOf(job *mlv1.TrainingJob, workers *batchv1.Job, causes []metav1.StatusCause) []metav1.StatusCause {
	list := make([]metav1.StatusCause, 0, len(causes))
	for _, cause := range causes {
		cause.Field = source(job, workers, cause.Field)
		cause.Message += ": correct it, because no worker could ever be created"
		list = append(list, cause)
	}
	return list
}

func source(job *mlv1.TrainingJob, workers *batchv1.Job, field string) string {
	for _, s := range sources {
		rest, ok := strings.CutPrefix(field, s.of)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return s.from + rest
		}
	}
	if match := variableField.FindStringSubmatch(field); match != nil {
		index, err := strconv.Atoi(match[1])
		if env := workers.Spec.Template.Spec.Containers[0].Env; err == nil && index < len(env) {
			name := env[index].Name
			if n := slices.IndexFunc(job.Spec.Env, func(v corev1.EnvVar) bool { return v.Name == name }); n >= 0 {
				return fmt.Sprintf("spec.env[%d]%s", n, match[2])
			}
			if rest, ok := strings.CutPrefix(match[2], ".valueFrom.secretKeyRef"); ok && name == "WANDB_API_KEY" {
				return "spec.monitoring.wandbSecretRef" + rest
			}
			return fmt.Sprintf("the workers' environment variable %s%s", name, match[2])
		}
	}
	return "the workers' Job: " + field
}
