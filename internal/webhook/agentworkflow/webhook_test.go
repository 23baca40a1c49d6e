package agentworkflow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// workflow counts, and then reports when a condition holds.
func workflow(condition string, change ...func(*aiplatformv1alpha1.AgentWorkflow)) *aiplatformv1alpha1.AgentWorkflow {
	w := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Name: "report", Namespace: "default"}}
	w.Spec.Stages = []aiplatformv1alpha1.Stage{
		{Name: "count", Agent: "counter"},
		{Name: "report", Agent: "reporter", DependsOn: []aiplatformv1alpha1.StageName{"count"}, Condition: condition},
	}
	for _, c := range change {
		c(w)
	}
	return w
}

func raw(t *testing.T, object *aiplatformv1alpha1.AgentWorkflow) runtime.RawExtension {
	t.Helper()
	if object == nil {
		return runtime.RawExtension{}
	}
	data, err := json.Marshal(object)
	require.NoError(t, err)
	return runtime.RawExtension{Raw: data}
}

func TestConditionsAreCompiled(t *testing.T) {
	const good, bad = "int(stages.count.outputs.words) > 3", "stages.count.outputs.words >"
	apart := func(w *aiplatformv1alpha1.AgentWorkflow) { w.Spec.Stages[1].DependsOn = nil }
	later := func(w *aiplatformv1alpha1.AgentWorkflow) {
		w.Spec.Stages = append(w.Spec.Stages, aiplatformv1alpha1.Stage{Name: "send", Agent: "sender", Condition: "1"})
	}
	labelled := func(w *aiplatformv1alpha1.AgentWorkflow) { w.Labels = map[string]string{"a": "b"} }
	ending := func(w *aiplatformv1alpha1.AgentWorkflow) { now := metav1.Now(); w.DeletionTimestamp = &now }
	for name, test := range map[string]struct {
		before, now *aiplatformv1alpha1.AgentWorkflow
		refused     []string // fields and the beginnings of messages
	}{
		"a workflow without conditions":             {now: workflow("")},
		"a condition that is right":                 {now: workflow(good)},
		"one that only an Agent makes right":        {now: workflow("stages.count.outputs.unknown == ''")},
		"a condition that is no CEL":                {now: workflow(bad), refused: []string{"spec.stages[1].condition: column 29: Syntax error"}},
		"one that yields a text":                    {now: workflow("stages.count.outputs.words"), refused: []string{"spec.stages[1].condition: it yields string"}},
		"one on a stage that may run later":         {now: workflow(good, apart), refused: []string{"spec.stages[1].condition: refers to stage count"}},
		"two at once":                               {now: workflow(bad, later), refused: []string{"spec.stages[1].condition: column", "spec.stages[2].condition: it yields int"}},
		"an update that makes one wrong":            {before: workflow(good), now: workflow(bad), refused: []string{"spec.stages[1].condition: column"}},
		"an update that fixes one":                  {before: workflow(bad), now: workflow(good)},
		"an update of one that is wrong already":    {before: workflow(bad), now: workflow(bad, labelled)},
		"an update that adds another mistake":       {before: workflow(bad), now: workflow(bad, later), refused: []string{"spec.stages[2].condition: it yields"}},
		"an update that takes away what it needs":   {before: workflow(good), now: workflow(good, apart), refused: []string{"spec.stages[1].condition: refers to"}},
		"an update of one that is about to be gone": {before: workflow(good), now: workflow(bad, ending)},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, aiplatformv1alpha1.AddToScheme(scheme))
			operation := admissionv1.Create
			if test.before != nil {
				operation = admissionv1.Update
			}
			response := (&validator{decoder: admission.NewDecoder(scheme)}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: operation, Namespace: "default", Object: raw(t, test.now), OldObject: raw(t, test.before),
			}})
			assert.Equal(t, len(test.refused) == 0, response.Allowed, "%v", response.Result)
			if response.Allowed {
				return
			}
			assert.EqualValues(t, 422, response.Result.Code)
			require.Len(t, response.Result.Details.Causes, len(test.refused))
			for i, cause := range response.Result.Details.Causes {
				_, detail, _ := strings.Cut(cause.Message, `": `)
				text := cause.Field + ": " + detail
				assert.Equal(t, test.refused[i], text[:min(len(text), len(test.refused[i]))])
				assert.Contains(t, response.Result.Message, cause.Field+": "+cause.Message)
			}
		})
	}
}

func TestWhatIsNotUnderstoodIsLetThrough(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, aiplatformv1alpha1.AddToScheme(scheme))
	v := &validator{decoder: admission.NewDecoder(scheme)}
	for _, request := range []admissionv1.AdmissionRequest{
		{Operation: "CREATE", Object: runtime.RawExtension{Raw: []byte(`{"spec": []}`)}},
		{Operation: "UPDATE", SubResource: "status", Object: raw(t, workflow("+"))},
	} {
		assert.True(t, v.Handle(t.Context(), admission.Request{AdmissionRequest: request}).Allowed)
	}
}
