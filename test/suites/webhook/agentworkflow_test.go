package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	agentworkflowwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/agentworkflow"
)

func TestConditionsOfWorkflowsAreCompiled(t *testing.T) {
	stop := serve(t, install(t))
	ns := namespace(t)
	workflow := func(name, condition string) *aiplatformv1alpha1.AgentWorkflow {
		w := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
		w.Spec.Stages = []aiplatformv1alpha1.Stage{
			{Name: "count", Agent: "counter"},
			{Name: "report", Agent: "reporter", DependsOn: []aiplatformv1alpha1.StageName{"count"}, Condition: condition},
		}
		return w
	}
	refused := func(err error) {
		t.Helper()
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(t, err, `spec.stages[1].condition: Invalid value: "words > 3": column 1: undeclared reference to 'words'`)
	}
	eventually(t, "the API server calls the webhook", func() bool {
		return k8s.Create(t.Context(), workflow("probe", "words > 3"), client.DryRunAll) != nil
	})
	refused(k8s.Create(t.Context(), workflow("wrong", "words > 3")))
	right := workflow("right", "int(stages.count.outputs.words) > 3")
	require.NoError(t, k8s.Create(t.Context(), right))
	patch := func(object client.Object, text string) error {
		return k8s.Patch(t.Context(), object, client.RawPatch(types.JSONPatchType, []byte(text)))
	}
	wrong := `[{"op": "replace", "path": "/spec/stages/1/condition", "value": "words > 3"}]`
	refused(patch(right.DeepCopy(), wrong))

	before := calls(t, agentworkflowwebhook.ValidatingPath)
	require.NoError(t, patch(right, `[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]`))
	right.Status.Phase = aiplatformv1alpha1.WorkflowPending
	require.NoError(t, k8s.Status().Update(t.Context(), right))
	assert.Equal(t, before, calls(t, agentworkflowwebhook.ValidatingPath), "it is called for nothing else")

	// Without the manager the workflow is stored, and its condition Ready will tell; it can be changed and deleted afterwards.
	stop()
	stored := workflow("stored", "words > 3")
	require.NoError(t, k8s.Create(t.Context(), stored))
	serve(t, install(t))
	eventually(t, "the API server calls the webhook", func() bool {
		return k8s.Create(t.Context(), workflow("probe", "words > 3"), client.DryRunAll) != nil
	})
	require.NoError(t, patch(stored, `[{"op": "add", "path": "/spec/timeoutSeconds", "value": 60}]`))
	require.NoError(t, k8s.Delete(t.Context(), stored))
}
