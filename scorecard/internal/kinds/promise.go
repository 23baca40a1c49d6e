package kinds

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

// test is the test of a promise.
func (p promise) test() suite.Test {
	return suite.Test{
		Name:  testName(p.kind),
		Suite: Suite,
		Question: fmt.Sprintf("Is the example of %s accepted, and does the operator say %s (%s)?",
			p.kind, p.says, p.words()),
		Run: p.run,
	}
}

// words are the conditions in words.
func (p promise) words() string {
	var list []string
	for _, c := range p.conditions {
		list = append(list, fmt.Sprintf("%s=%s, %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(list, " or ")
}

// kept is the condition by which the promise is kept; nil when it is not.
func (p promise) kept(now []metav1.Condition, generation int64) *metav1.Condition {
	for _, want := range p.conditions {
		found := meta.FindStatusCondition(now, want.Type)
		if found != nil && found.Status == want.Status && found.Reason == want.Reason && found.ObservedGeneration == generation {
			return found
		}
	}
	return nil
}

func (p promise) run(ctx context.Context, l *lab.Lab) error {
	object, err := example(l, p.kind)
	if err != nil {
		return err
	}
	if err := l.Create(ctx, testName(p.kind), object); err != nil {
		return err
	}
	var last []metav1.Condition
	err = l.Until(ctx, fmt.Sprintf("%s %s has the condition %s", p.kind, object.GetName(), p.words()),
		func(ctx context.Context) (bool, error) {
			if err := l.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return false, err
			}
			now, err := conditions(object)
			if err != nil {
				return false, err
			}
			last = now
			return p.kept(now, object.GetGeneration()) != nil, nil
		})
	if err != nil {
		return fmt.Errorf("%w; its conditions are %+v", err, last)
	}
	found := p.kept(last, object.GetGeneration())
	l.Logf("%s=%s, %s: %s", found.Type, found.Status, found.Reason, found.Message)
	if found.Message == "" {
		return verdict.Failf("the condition %s of %s %s has no message", found.Type, p.kind, object.GetName())
	}
	return nil
}

// example is the bundle's example of the kind under a new name, in the lab's namespace unless the kind is cluster-wide.
func example(l *lab.Lab, kind string) (*unstructured.Unstructured, error) {
	object, err := l.Bundle.Example(kind)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, verdict.Failf("the annotation alm-examples has no %s", kind)
	}
	crd := l.Bundle.CRD(kind)
	if crd == nil {
		return nil, verdict.Failf("the bundle has no CustomResourceDefinition of %s", kind)
	}
	object.SetName(lab.Name(crd.Spec.Names.Singular))
	object.SetNamespace("")
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		object.SetNamespace(l.Namespace)
	}
	return object, nil
}

// conditions are the conditions in the object's status.
func conditions(object *unstructured.Unstructured) ([]metav1.Condition, error) {
	var content struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &content); err != nil {
		return nil, fmt.Errorf("read the conditions of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return content.Status.Conditions, nil
}
