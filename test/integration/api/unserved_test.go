package api_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dcnlab/spot-training-operator/controllers/unserved"
)

// examples are an object of every kind that this version does not act on.
var examples = map[string]string{
	"SpotInstanceJob": spotInstanceJob,
	"SpotInstanceVM":  spotInstanceVM,
	"AIJob":           aiJob,
	"Agent":           agent,
	"AgentWorkflow":   agentWorkflow,
}

func TestUnservedKindsSaySoOnce(t *testing.T) {
	for _, kind := range unserved.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			created := create(t, with(t, object(t, examples[kind.Name]), `metadata: {name: unserved}`))
			key := client.ObjectKeyFromObject(created)
			morning := time.Date(2030, 1, 2, 8, 0, 0, 0, time.UTC)
			clock := clocktesting.NewFakePassiveClock(morning)
			reconciler := &unserved.Reconciler{Client: k8s, Clock: clock, Kind: kind}
			reconcileOnce := func() unserved.Object {
				t.Helper()
				result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				require.NoError(t, err)
				assert.Equal(t, reconcile.Result{}, result)
				object := kind.New()
				require.NoError(t, k8s.Get(t.Context(), key, object))
				return object
			}

			first := reconcileOnce()
			want := []metav1.Condition{{
				Type:               "Ready",
				Status:             metav1.ConditionFalse,
				Reason:             "ControllerNotAvailable",
				ObservedGeneration: 1,
				LastTransitionTime: metav1.NewTime(morning),
			}}
			assert.Empty(t, cmp.Diff(want, *first.StatusConditions(), cmpopts.IgnoreFields(metav1.Condition{}, "Message")))
			assert.Contains(t, (*first.StatusConditions())[0].Message, "does not act on it yet")
			assert.NotEqual(t, created.GetResourceVersion(), first.GetResourceVersion())

			clock.SetTime(morning.Add(5 * time.Minute))
			second := reconcileOnce()
			assert.Equal(t, first.GetResourceVersion(), second.GetResourceVersion(), "a resync must not write")

			label := mergePatch(t, `metadata: {labels: {touched: "yes"}}`)
			require.NoError(t, k8s.Patch(t.Context(), second, label))
			third := reconcileOnce()
			assert.Equal(t, second.GetResourceVersion(), third.GetResourceVersion(), "a label is nothing to write about")
		})
	}
}

func TestUnservedIgnoresWhatIsGone(t *testing.T) {
	for _, kind := range unserved.Kinds() {
		reconciler := &unserved.Reconciler{Client: k8s, Clock: clocktesting.NewFakePassiveClock(time.Now()), Kind: kind}
		_, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "gone"}})
		assert.NoError(t, err, kind.Name)
	}
}

// The controllers run in a manager: every object gets its condition, at its newest generation.
func TestUnservedInManager(t *testing.T) {
	manager, err := ctrl.NewManager(restConfig, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, unserved.SetupWithManager(manager))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	defer func() {
		stop()
		assert.NoError(t, <-ended)
	}()

	job := create(t, with(t, object(t, aiJob), `metadata: {name: managed}`))
	conditionAt := func(generation int64) func() bool {
		return func() bool {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
				return false
			}
			status, _ := json.Marshal(job.Object["status"])
			var conditions struct{ Conditions []metav1.Condition }
			return json.Unmarshal(status, &conditions) == nil && len(conditions.Conditions) == 1 &&
				conditions.Conditions[0].ObservedGeneration == generation
		}
	}
	require.Eventually(t, conditionAt(1), 30*time.Second, 20*time.Millisecond)

	job.Object["spec"].(map[string]any)["priority"] = int64(7)
	require.NoError(t, k8s.Update(ctx, job))
	require.Eventually(t, conditionAt(2), 30*time.Second, 20*time.Millisecond)
}
