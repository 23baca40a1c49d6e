package aijob

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// life runs a gang through a failure, DeadLetter and back, and the deletion of a pod to its end. It returns the writes of the
// manager, which dies at the cut and is restarted.
func life(t *testing.T, at *crash.Cut) []string {
	t.Helper()
	c := newExclusiveCluster(t)
	m := c.start(at)
	run := c.submit(gang().Retries(0, 10*time.Millisecond))
	reach := func(phase aiplatformv1alpha1.AIJobPhase, tries int32) {
		t.Helper()
		c.reach(run, fmt.Sprintf("%s after %d tries", phase, tries), func(s *aiplatformv1alpha1.AIJobStatus) bool {
			if m.Crashed() {
				m.stop()
				m = c.start(nil)
			}
			return s.Phase == phase && attemptOf(s) == tries
		})
	}
	reach(aiplatformv1alpha1.AIJobRunning, 0)
	c.exit("train-0-0", 1, "")
	reach(aiplatformv1alpha1.AIJobDeadLetter, 0)
	c.patch(run, map[string]any{"metadata": map[string]any{"annotations": map[string]any{aiplatformv1alpha1.AnnotationRequeue: "true"}}})
	reach(aiplatformv1alpha1.AIJobRunning, 1)
	for _, pod := range c.pods() {
		if pod.Name == "train-1-1" {
			require.NoError(t, c.Delete(t.Context(), &pod))
		}
	}
	reach(aiplatformv1alpha1.AIJobRunning, 2)
	c.exit("train-0-2", 0, `{"loss": 0.1}`)
	c.exit("train-1-2", 0, "")
	reach(aiplatformv1alpha1.AIJobSucceeded, 2)
	c.quiet(m)
	if m.Crashed() {
		m.stop()
		m = c.start(nil)
		c.quiet(m)
	}
	require.NoError(t, c.Get(t.Context(), keyOf(run), run))
	assert.Equal(t, "Succeeded Completed", short(run.Status))
	assert.Equal(t, map[string]string{"loss": "0.1"}, run.Status.Outputs)
	assert.Equal(t, int32(1), run.Status.RetryCount)
	assert.Equal(t, int32(1), run.Status.PreemptionCount)
	assert.NotContains(t, run.Annotations, aiplatformv1alpha1.AnnotationRequeue)
	assert.ElementsMatch(t, []string{"train-0-0", "train-1-0", "train-0-1", "train-1-1", "train-0-2", "train-1-2"}, c.created,
		"each member was started once in each try")
	return m.Written()
}

func TestAPIALifeSurvivesACrashAtAnyWrite(t *testing.T) {
	writes := life(t, nil)
	t.Logf("%d writes: %q", len(writes), writes)
	require.GreaterOrEqual(t, len(writes), 15)
	crash.AtEachWrite(t, len(writes), func(t *testing.T, at *crash.Cut) { life(t, at) })
}
