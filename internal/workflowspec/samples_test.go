package workflowspec

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// The examples that users copy must start.
func TestTheSamplesHaveNoMistakes(t *testing.T) {
	const folder = "../../config/samples/aiplatform_v1alpha1_"
	text, err := os.ReadFile(folder + "agent.yaml")
	require.NoError(t, err)
	agents := map[string]*aiplatformv1alpha1.Agent{}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var agent aiplatformv1alpha1.Agent
		require.NoError(t, yaml.UnmarshalStrict(document, &agent))
		assert.Empty(t, CheckAgent(&agent))
		agents[agent.Name] = &agent
	}
	require.Len(t, agents, 2)
	text, err = os.ReadFile(folder + "agentworkflow.yaml")
	require.NoError(t, err)
	var workflow aiplatformv1alpha1.AgentWorkflow
	require.NoError(t, yaml.UnmarshalStrict(text, &workflow))
	require.Len(t, workflow.Spec.Stages, 2)
	assert.Empty(t, Check(&workflow, agents))
	assert.Nil(t, CheckTrigger(&workflow.Spec.Trigger, time.Now()))
}
