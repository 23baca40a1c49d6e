//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// agent creates an Agent that runs a script of the shell with the input text, and yields out.
func agent(t *testing.T, ns, name, script string) {
	t.Helper()
	a := &aiplatformv1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	a.Spec = aiplatformv1alpha1.AgentSpec{
		Image: workerImage(t), Command: []string{"sh", "-c", script},
		Inputs:      []aiplatformv1alpha1.AgentInput{{Name: "text", Default: ptr.To("")}},
		Outputs:     []aiplatformv1alpha1.AgentOutput{{Name: "out"}},
		RetryPolicy: aiplatformv1alpha1.RetryPolicy{MaxRetries: ptr.To[int32](0)},
	}
	require.NoError(t, cluster.Create(t.Context(), a))
}

// ends waits for the end of a workflow, and reads it.
func ends(t *testing.T, workflow *aiplatformv1alpha1.AgentWorkflow, phase aiplatformv1alpha1.WorkflowPhase) {
	t.Helper()
	eventually(t, fmt.Sprintf("workflow %s is %s", workflow.Name, phase), func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(workflow), workflow); err != nil {
			return false, err
		}
		return workflow.Status.Phase == phase, nil
	})
}

func TestAWorkflowHandsValuesFromStageToStage(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	agent(t, ns, "count", `printf '{"out":"%d"}' "$(echo "$INPUT_TEXT" | wc -w)" > /dev/termination-log`)
	agent(t, ns, "say", `printf '{"out":"%s words"}' "$INPUT_TEXT" > /dev/termination-log`)
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Name: "words", Namespace: ns}}
	workflow.Spec.Inputs = map[string]aiplatformv1alpha1.ParameterValue{"document": "the quick $(HOME) fox"}
	given := func(text aiplatformv1alpha1.ParameterValue) map[string]aiplatformv1alpha1.ParameterValue {
		return map[string]aiplatformv1alpha1.ParameterValue{"text": text}
	}
	first := []aiplatformv1alpha1.StageName{"count"}
	workflow.Spec.Stages = []aiplatformv1alpha1.Stage{
		{Name: "count", Agent: "count", Inputs: given("$(inputs.document)")},
		{Name: "say", Agent: "say", DependsOn: first, Inputs: given("$(stages.count.outputs.out)"), Condition: "int(stages.count.outputs.out) > 3"},
		{Name: "shout", Agent: "say", DependsOn: first, Inputs: given("many"), Condition: "int(stages.count.outputs.out) > 100"},
	}
	require.NoError(t, cluster.Create(t.Context(), workflow))

	ends(t, workflow, aiplatformv1alpha1.WorkflowSucceeded)
	assert.Equal(t, map[string]string{"count.out": "4", "say.out": "4 words"}, workflow.Status.Results)
	assert.Equal(t, aiplatformv1alpha1.StageSkipped, workflow.Status.Stages[2].Phase)
	require.Len(t, workflow.Status.Graph, 3)
	assert.Contains(t, workflow.Status.Graph[0], "✔ count")
	assert.Contains(t, workflow.Status.Graph[1], "├─ ✔ say")
	assert.Contains(t, workflow.Status.Graph[2], "└─ – shout")

	// With the workflow its jobs and pods go.
	require.NoError(t, cluster.Delete(t.Context(), workflow))
	eventually(t, "the AIJobs go with the workflow", func(ctx context.Context) (bool, error) {
		var jobs aiplatformv1alpha1.AIJobList
		err := cluster.List(ctx, &jobs, client.InNamespace(ns))
		return len(jobs.Items) == 0 && apierrors.IsNotFound(cluster.Get(ctx, client.ObjectKeyFromObject(workflow), workflow)), err
	})
}

func TestAFailedStageStopsTheWorkflow(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	agent(t, ns, "fails", "exit 3")
	agent(t, ns, "sleeps", "exec sleep 600")
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Name: "doomed", Namespace: ns}}
	workflow.Spec.Stages = []aiplatformv1alpha1.Stage{
		{Name: "sleeps", Agent: "sleeps"}, {Name: "fails", Agent: "fails"}, {Name: "never", Agent: "sleeps", DependsOn: []aiplatformv1alpha1.StageName{"fails"}},
	}
	require.NoError(t, cluster.Create(t.Context(), workflow))

	ends(t, workflow, aiplatformv1alpha1.WorkflowFailed)
	assert.Contains(t, workflow.Status.Message, "stage fails failed")
	assert.Equal(t, aiplatformv1alpha1.StageSkipped, workflow.Status.Stages[2].Phase)
	var stopped aiplatformv1alpha1.AIJob
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: workflow.Status.Stages[0].JobName}, &stopped))
	assert.Equal(t, aiplatformv1alpha1.AIJobCancelled, stopped.Status.Phase)
}
