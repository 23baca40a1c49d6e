package workflow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func workflowOf(agents ...string) aiplatformv1alpha1.AgentWorkflow {
	var w aiplatformv1alpha1.AgentWorkflow
	for _, agent := range agents {
		w.Spec.Stages = append(w.Spec.Stages, aiplatformv1alpha1.Stage{Agent: agent})
	}
	return w
}

func TestAgentPlan(t *testing.T) {
	gone := workflowOf("reader")
	gone.DeletionTimestamp = &metav1.Time{Time: builders.Noon}
	o := observedAgent{now: builders.Noon, agent: &aiplatformv1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "reader", Generation: 2}}}
	o.workflows = []aiplatformv1alpha1.AgentWorkflow{workflowOf("reader", "writer", "reader"), workflowOf("writer"), workflowOf("reader"), gone}

	status := planAgent(o)
	assert.Equal(t, int32(2), status.Workflows)
	assert.Equal(t, int64(2), status.ObservedGeneration)
	require.Len(t, status.Conditions, 1)
	assert.Equal(t, "Ready", status.Conditions[0].Reason)
	assert.Equal(t, metav1.ConditionTrue, status.Conditions[0].Status)

	o.agent.Status = status
	o.now = o.now.Add(1)
	assert.Equal(t, status, planAgent(o), "looking again later is no change")

	o.agent.Spec.Inputs = []aiplatformv1alpha1.AgentInput{{Name: "a-b"}, {Name: "a_b"}}
	wrong := planAgent(o)
	assert.Equal(t, metav1.ConditionFalse, wrong.Conditions[0].Status)
	assert.Equal(t, "InvalidAgent", wrong.Conditions[0].Reason)
	assert.Contains(t, wrong.Conditions[0].Message, "spec.inputs[1].name")
}
