package unserved

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestPlan(t *testing.T) {
	morning := time.Date(2030, 1, 2, 8, 0, 0, 0, time.UTC)
	noon := morning.Add(4 * time.Hour)
	notServed := func(generation int64, since time.Time) metav1.Condition {
		return metav1.Condition{
			Type:               "Ready",
			Status:             metav1.ConditionFalse,
			Reason:             "ControllerNotAvailable",
			Message:            message("AIJob"),
			ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(since),
		}
	}
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(morning),
	}
	scheduled := metav1.Condition{
		Type: "Scheduled", Status: metav1.ConditionTrue, Reason: "Placed", LastTransitionTime: metav1.NewTime(morning),
	}

	tests := map[string]struct {
		observed observed
		want     []metav1.Condition
	}{
		"a new object gets the condition": {
			observed: observed{kind: "AIJob", generation: 1, now: noon},
			want:     []metav1.Condition{notServed(1, noon)},
		},
		"an object that has the condition keeps it": {
			observed: observed{kind: "AIJob", generation: 1, now: noon, conditions: []metav1.Condition{notServed(1, morning)}},
			want:     []metav1.Condition{notServed(1, morning)},
		},
		"a changed spec is seen, without a transition": {
			observed: observed{kind: "AIJob", generation: 2, now: noon, conditions: []metav1.Condition{notServed(1, morning)}},
			want:     []metav1.Condition{notServed(2, morning)},
		},
		"an object that another version had served changes to False": {
			observed: observed{kind: "AIJob", generation: 1, now: noon, conditions: []metav1.Condition{ready}},
			want:     []metav1.Condition{notServed(1, noon)},
		},
		"conditions of others stay": {
			observed: observed{kind: "AIJob", generation: 1, now: noon, conditions: []metav1.Condition{scheduled}},
			want:     []metav1.Condition{scheduled, notServed(1, noon)},
		},
		"an object that is being deleted is left alone": {
			observed: observed{kind: "AIJob", generation: 2, now: noon, deleted: true, conditions: []metav1.Condition{notServed(1, morning)}},
			want:     []metav1.Condition{notServed(1, morning)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := append([]metav1.Condition(nil), test.observed.conditions...)

			got := plan(test.observed)

			assert.Empty(t, cmp.Diff(test.want, got))
			assert.Empty(t, cmp.Diff(before, test.observed.conditions), "what was observed must not be changed")
		})
	}
}

func TestUnchanged(t *testing.T) {
	o := observed{kind: "AIJobQueue", generation: 3, now: time.Unix(1000, 0)}
	first := plan(o)
	assert.False(t, unchanged(nil, first), "the first condition is a change")

	o.conditions, o.now = first, time.Unix(2000, 0)
	assert.True(t, unchanged(first, plan(o)), "looking again later is no change")

	o.generation = 4
	assert.False(t, unchanged(first, plan(o)), "a new generation is a change")
}

func TestKindsCoverBothGroups(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, spotv1alpha1.AddToScheme(scheme))
	require.NoError(t, aiplatformv1alpha1.AddToScheme(scheme))

	served := map[schema.GroupVersionKind]bool{
		spotv1alpha1.GroupVersion.WithKind("SpotInstanceVM"):  true, // has a controller
		spotv1alpha1.GroupVersion.WithKind("SpotInstanceJob"): true, // has a controller

		aiplatformv1alpha1.GroupVersion.WithKind("AIJobQueue"):     true, // has a controller
		aiplatformv1alpha1.GroupVersion.WithKind("ComputeCluster"): true, // has a controller
		aiplatformv1alpha1.GroupVersion.WithKind("Agent"):          true, // has a controller
		aiplatformv1alpha1.GroupVersion.WithKind("AgentWorkflow"):  true, // has a controller
	}
	for _, kind := range Kinds() {
		gvk, err := apiutil.GVKForObject(kind.New(), scheme)
		require.NoError(t, err)
		assert.Equal(t, gvk.Kind, kind.Name)
		served[gvk] = true
	}
	for _, version := range []schema.GroupVersion{spotv1alpha1.GroupVersion, aiplatformv1alpha1.GroupVersion} {
		for kind := range scheme.KnownTypes(version) {
			if scheme.Recognizes(version.WithKind(kind + "List")) {
				assert.True(t, served[version.WithKind(kind)], "%s has no entry in Kinds", kind)
			}
		}
	}
}

func TestBothGroupsNameTheConditionAlike(t *testing.T) {
	assert.Equal(t, spotv1alpha1.ConditionReady, aiplatformv1alpha1.ConditionReady)
	assert.Equal(t, spotv1alpha1.ReasonControllerNotAvailable, aiplatformv1alpha1.ReasonControllerNotAvailable)
}
