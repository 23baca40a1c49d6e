package level1

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

func badInputRejected() suite.Test {
	return suite.Test{
		Name:     "level1-bad-input-rejected",
		Suite:    Suite,
		Question: "Is bad input of every kind rejected by the API server, with a message that names the field?",
		Run:      rejects,
	}
}

// mistake is a value that makes the example of a kind wrong; without one the field is removed.
type mistake struct {
	kind  string
	field string
	value any
}

var mistakes = []mistake{
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

func rejects(ctx context.Context, l *lab.Lab) error {
	var all []error
	for _, m := range mistakes {
		all = append(all, m.isRejected(ctx, l))
	}
	return errors.Join(all...)
}

// isRejected sends the wrong object as a dry run, so that nothing is stored even when it is accepted.
func (m mistake) isRejected(ctx context.Context, l *lab.Lab) error {
	object, err := m.object(l)
	if err != nil {
		return err
	}
	err = l.Client.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case err == nil:
		return verdict.Failf("%s with %s is accepted", m.kind, m)
	case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err):
		return fmt.Errorf("try %s with %s: %w", m.kind, m, err)
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "denied the request"):
		return fmt.Errorf("try %s with %s: %w", m.kind, m, err)
	case !strings.Contains(err.Error(), m.field):
		return verdict.Failf("%s with %s is rejected without naming the field: %v", m.kind, m, err)
	}
	l.Logf("%s with %s: %v", m.kind, m, err)
	return nil
}

// object is the example of the kind with the mistake in it.
func (m mistake) object(l *lab.Lab) (*unstructured.Unstructured, error) {
	object, err := l.Bundle.Example(m.kind)
	if err != nil {
		return nil, err
	}
	crd := l.Bundle.CRD(m.kind)
	if object == nil || crd == nil {
		return nil, verdict.Failf("the bundle has no example or no CustomResourceDefinition of %s", m.kind)
	}
	object.SetName(lab.Name("mistake"))
	object.SetNamespace("")
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		object.SetNamespace(l.Namespace)
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

func (m mistake) String() string {
	if m.value == nil {
		return "no " + m.field
	}
	return fmt.Sprintf("%s=%v", m.field, m.value)
}
