package checks

import (
	"context"
	"errors"
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

func badInputRejected(ctx context.Context, env *cluster.Env) error {
	var all []error
	for _, m := range badInputs {
		all = append(all, m.isRejected(ctx, env))
	}
	return errors.Join(all...)
}

// isRejected sends the wrong object as a dry run, so that nothing is stored even when it is accepted.
func (m badInput) isRejected(ctx context.Context, env *cluster.Env) error {
	object, err := m.object(env)
	if err != nil {
		return err
	}
	err = env.Client.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case err == nil:
		return cluster.Failf("%s with %s is accepted", m.kind, m)
	case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err):
		return fmt.Errorf("try %s with %s: %w", m.kind, m, err)
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "denied the request"):
		return fmt.Errorf("try %s with %s: %w", m.kind, m, err)
	case !strings.Contains(err.Error(), m.field):
		return cluster.Failf("%s with %s is rejected without naming the field: %v", m.kind, m, err)
	}
	env.Logf("%s with %s: %v", m.kind, m, err)
	return nil
}

func (m badInput) object(env *cluster.Env) (*unstructured.Unstructured, error) {
	object, err := env.Example(m.kind, "invalid")
	if err != nil {
		return nil, err
	}
	path := strings.Split(m.field, ".")
	if m.value == nil {
		unstructured.RemoveNestedField(object.Object, path...)
		return object, nil
	}
	if err := unstructured.SetNestedField(object.Object, m.value, path...); err != nil {
		return nil, fmt.Errorf("put a wrong %s into the example of %s: %w", m.field, m.kind, err)
	}
	return object, nil
}

func (m badInput) String() string {
	if m.value == nil {
		return "no " + m.field
	}
	return fmt.Sprintf("%s=%v", m.field, m.value)
}
