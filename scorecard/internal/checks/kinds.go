package checks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// promise is how this version of the operator treats the bundle's example of a kind.
type promise struct {
	kind string
	// conditions: the example gets one of them; which one may depend on the cluster.
	conditions []metav1.Condition
	// says is the meaning of the condition.
	says string
}

// promises are for examples that cannot run where the test runs: those of spot instances name a Secret with the key of a Google
// Cloud project, that of AIJob a private image and a GPU, that of ComputeCluster nodes with a label, and that of AgentWorkflow
// agents that do not exist. The operator must still process each, report what is missing, and create nothing.
var promises = []promise{
	{"SpotInstanceJob", withoutSecret, "which Secret it lacks"},
	{"SpotInstanceVM", slices.Concat(withoutSecret, ready(metav1.ConditionFalse, reasons.NamespaceNotAllowed)), "which Secret or allowance it lacks"},
	{"AIJob", slices.Concat(
		ready(metav1.ConditionFalse, reasons.InsufficientCapacity), ready(metav1.ConditionTrue, reasons.Ready),
	), "that it runs it, or that no node has room for it"},
	{"AIJobQueue", slices.Concat(
		ready(metav1.ConditionTrue, reasons.PriorityClassNotFound), ready(metav1.ConditionTrue, reasons.Ready),
	), "that it admits jobs"},
	{"ComputeCluster", slices.Concat(
		ready(metav1.ConditionFalse, reasons.NoMatchingNodes), ready(metav1.ConditionTrue, reasons.Ready),
		ready(metav1.ConditionTrue, reasons.NodesNotReady), ready(metav1.ConditionFalse, reasons.NodesNotReady),
	), "how its nodes are"},
	{"Agent", ready(metav1.ConditionTrue, reasons.Ready), "that workflows can use it"},
	{"AgentWorkflow", ready(metav1.ConditionFalse, reasons.AgentNotFound), "which Agent it lacks"},
}

var withoutSecret = ready(metav1.ConditionFalse, reasons.SecretNotFound)

func ready(status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: reasons.ConditionReady, Status: status, Reason: reason}}
}

// Kinds returns one test for each kind: the bundle's example of it is created, and the operator must treat it as this version
// promises.
func Kinds() []Test {
	tests := []Test{{
		Name:     "kind-trainingjob",
		Question: "Does the example of TrainingJob train: is it Running, and then Completed with all of its epochs?",
		Timeout:  trainingTimeout,
		Run:      trainingJobTrains,
	}}
	for _, p := range promises {
		tests = append(tests, Test{
			Name:     "kind-" + strings.ToLower(p.kind),
			Question: fmt.Sprintf("Is the example of %s accepted, and does the operator say %s (%s)?", p.kind, p.says, p.list()),
			Run:      p.check,
		})
	}
	return tests
}

func (p promise) list() string {
	var list []string
	for _, c := range p.conditions {
		list = append(list, fmt.Sprintf("%s=%s, %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(list, " or ")
}

// fulfilled returns the condition that fulfills the promise; nil when none does.
func (p promise) fulfilled(now []metav1.Condition, generation int64) *metav1.Condition {
	for _, want := range p.conditions {
		found := meta.FindStatusCondition(now, want.Type)
		if found != nil && found.Status == want.Status && found.Reason == want.Reason && found.ObservedGeneration == generation {
			return found
		}
	}
	return nil
}

func (p promise) check(env *cluster.Env) {
	object := env.Example(p.kind, strings.ToLower(p.kind))
	env.Create(object)
	var last []metav1.Condition
	err := env.Until(env.Context, fmt.Sprintf("%s %s has the condition %s", p.kind, object.GetName(), p.list()),
		func(ctx context.Context) (bool, error) {
			if err := env.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return false, err
			}
			now, err := conditionsOf(object)
			if err != nil {
				return false, err
			}
			last = now
			return p.fulfilled(now, object.GetGeneration()) != nil, nil
		})
	if err != nil {
		env.Check(fmt.Errorf("%w; its conditions are %+v", err, last))
	}
	found := p.fulfilled(last, object.GetGeneration())
	env.Logf("%s=%s, %s: %s", found.Type, found.Status, found.Reason, found.Message)
	if found.Message == "" {
		env.Failf("the condition %s of %s %s has no message", found.Type, p.kind, object.GetName())
	}
}

func conditionsOf(object *unstructured.Unstructured) ([]metav1.Condition, error) {
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
