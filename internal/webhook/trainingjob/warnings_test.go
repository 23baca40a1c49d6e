package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestVariablesThatTheOperatorSetsAreSaidToHaveNoEffect(t *testing.T) {
	job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Env = []corev1.EnvVar{{Name: "EPOCHS", Value: "3"}, {Name: "WORLD_SIZE", Value: "1"}}
	}).Obj()
	workers := &batchv1.Job{}
	workers.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: "WORLD_SIZE", Value: "2"}, {Name: "EPOCHS", Value: "3"}}}}
	assert.Equal(t, []string{"spec.env[1]: WORLD_SIZE has no effect: the operator sets it, because workers find each other by it: remove it"},
		ignoredVariables(job, workers))
}
