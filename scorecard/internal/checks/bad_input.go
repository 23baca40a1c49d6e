package checks

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// badInput is an invalid value for a field of a kind's example; nil removes the field.
type badInput struct {
	kind  string
	field string
	value any
}

var badInputs = []badInput{
	{"TrainingJob", "spec.model", nil},
	{"TrainingJob", "spec.numWorkers", int64(0)},
	{"TrainingJob", "spec.framework", "caffe"},
	{"TrainingJob", "spec.gpusPerWorker", int64(-1)},
	{"TrainingJob", "spec.networking.backend", "nccl"}, // the example trains on CPUs
	{"TrainingJob", "spec.checkpoint.resumeFrom", "ftp://elsewhere/checkpoint"},
	{"TrainingJob", "spec.hyperparameters.epochs", int64(0)},
	{"TrainingJob", "spec.epochs", int64(3)}, // no such field
	{"SpotInstanceJob", "spec.replicas", int64(0)},
	{"SpotInstanceVM", "spec.maxInstances", int64(-1)},
	{"AIJob", "spec.priority", int64(101)},
	{"AIJobQueue", "spec.maxConcurrency", int64(0)},
	{"ComputeCluster", "spec.capacity.maxGPUs", int64(-1)},
	{"Agent", "spec.image", nil},
	{"AgentWorkflow", "spec.stages", nil},
}

func badInputRejected(env *cluster.Env) { each(env, badInputs, badInput.isRejected) }

// isRejected sends the wrong object as a dry run, so that nothing is stored even when it is accepted.
func (m badInput) isRejected(env *cluster.Env) {
	object := env.Example(m.kind, "invalid")
	what, path := m.field, strings.Split(m.field, ".")
	if m.value == nil {
		what = "no " + what
		unstructured.RemoveNestedField(object.Object, path...)
	} else {
		what = fmt.Sprintf("%s=%v", what, m.value)
		env.Checkf(unstructured.SetNestedField(object.Object, m.value, path...), "put a wrong %s into the example of %s", m.field, m.kind)
	}
	err := env.Client.Create(env.Context, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	denied := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "denied the request")
	switch {
	case err == nil:
		env.Failf("%s with %s is accepted", m.kind, what)
	case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !denied:
		env.Checkf(err, "try %s with %s", m.kind, what)
	case !strings.Contains(err.Error(), m.field):
		env.Failf("%s with %s is rejected without naming the field: %v", m.kind, what, err)
	}
	env.Logf("%s with %s: %v", m.kind, what, err)
}
