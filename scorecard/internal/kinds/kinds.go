// Package kinds has one test for each kind: the bundle's example of it is applied, and the operator must do with it what
// this version promises.
package kinds

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
)

// Suite is the label of these tests.
const Suite = "kinds"

// promise is what this version of the operator promises of a kind's example.
type promise struct {
	kind      string
	condition metav1.Condition
	// says is what the condition says, in words.
	says string
}

// promises must be tightened with every kind that gets its controller: the kind then leaves this table for a test of
// its own that waits until the example does its work, as the one of TrainingJob does. Until then the test asks for what
// is true, that the operator says that it does not act on the object, and for nothing more. The examples of spot instances
// name a Secret with the key to a project of Google's, which nobody has where the test runs: that must be told, and nothing
// be created.
var promises = []promise{
	{"SpotInstanceJob", withoutSecret, "which Secret it lacks"},
	{"SpotInstanceVM", withoutSecret, "which Secret it lacks"},
	{"AIJob", aiplatformStored, notYet},
	{"AIJobQueue", aiplatformStored, notYet},
	{"ComputeCluster", aiplatformStored, notYet},
	{"Agent", aiplatformStored, notYet},
	{"AgentWorkflow", aiplatformStored, notYet},
}

const notYet = "that it does not act on it yet"

var (
	withoutSecret = metav1.Condition{
		Type: spotv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: spotv1alpha1.ReasonSecretNotFound,
	}
	aiplatformStored = metav1.Condition{
		Type: aiplatformv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: aiplatformv1alpha1.ReasonControllerNotAvailable,
	}
)

// Tests returns the tests of all kinds.
func Tests() []suite.Test {
	tests := []suite.Test{trainingJob()}
	for _, p := range promises {
		tests = append(tests, p.test())
	}
	return tests
}

func testName(kind string) string { return "kind-" + strings.ToLower(kind) }
