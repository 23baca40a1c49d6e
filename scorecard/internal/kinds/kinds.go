// Package kinds has one test for each kind: the bundle's example of it is applied, and the operator must do with it what
// this version promises.
package kinds

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
)

// Suite is the label of these tests.
const Suite = "kinds"

// promise is what this version of the operator promises of a kind's example.
type promise struct {
	kind string
	// conditions are those of which the example gets one: which, may depend on the cluster.
	conditions []metav1.Condition
	// says is what the condition says, in words.
	says string
}

// promises are of examples that cannot do their work where the test runs: those of spot instances name a Secret with the key to a
// project of Google's, that of AIJob an image that is not public and a GPU, that of ComputeCluster nodes with a label, and that of
// AgentWorkflow agents which are not there. The operator must take each up all the same, say what is missing, and create nothing.
var promises = []promise{
	{"SpotInstanceJob", withoutSecret, "which Secret it lacks"},
	{"SpotInstanceVM", withoutSecret, "which Secret it lacks"},
	{"AIJob", ready(metav1.ConditionTrue, reasons.Ready), "that it acts on it"},
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

// ready is the condition Ready, which all kinds call the same.
func ready(status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: reasons.ConditionReady, Status: status, Reason: reason}}
}

// Tests returns the tests of all kinds.
func Tests() []suite.Test {
	tests := []suite.Test{trainingJob()}
	for _, p := range promises {
		tests = append(tests, p.test())
	}
	return tests
}

func testName(kind string) string { return "kind-" + strings.ToLower(kind) }
