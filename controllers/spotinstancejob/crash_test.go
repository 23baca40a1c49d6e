package spotinstancejob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// life runs a job of two replicas through a preemption to its end. The cluster fails the test by itself when two pods of
// a replica are there at a time. It returns the writes of the manager, which crashes at the cut and is started again.
func life(t *testing.T, at *crash.Cut) []string {
	t.Helper()
	c := newCluster(t, "v1", "a", "b", "c")
	m := c.start(at)
	alive := func() {
		if m.Crashed() {
			m.stop()
			m = c.start(nil)
		}
	}
	job := c.submit(spotJob().Checkpoints(hour))
	reach := func(what string, is func(*spotv1alpha1.SpotInstanceJobStatus) bool) {
		t.Helper()
		c.reach(job, what, func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
			alive()
			return is(status)
		})
	}
	reach("Running", runs(2))
	c.take(c.podOf(0).Spec.NodeName)
	reach("Running again", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return runs(2)(status) && status.JobStatuses[0].Name == "bert-0-r1"
	})
	c.succeedIn(0)
	reach("Succeeded", phase(spotv1alpha1.JobSucceeded))
	c.until("the other being stopped", func() bool {
		alive()
		names := c.jobNames()
		return len(names) == 1 && names[0] == "bert-0-r1"
	})
	c.quiet(m)
	require.NoError(t, c.Get(t.Context(), key(job), job))
	assert.Equal(t, spotv1alpha1.JobSucceeded, job.Status.Phase)
	assert.Equal(t, int32(1), job.Status.PreemptionCount)
	assert.Equal(t, map[string]spotv1alpha1.ReplicaPhase{"bert-0-r1": "Succeeded"}, replicaPhases(job.Status))
	assert.Contains(t, c.started["bert-0-r1"], "team/checkpoints:bert-0-", "it went on from its last checkpoint")
	assert.Len(t, c.started, 3, "no replica was started more often than needed: %v", c.started)
	backups := 0
	for _, object := range c.backups() {
		if object.GetLabels()[labelSaves] == "bert-0" {
			backups++
		}
	}
	assert.Equal(t, 1, backups, "one checkpoint was taken because of the notice")
	return m.Written()
}

func TestAPIALifeSurvivesACrashAtAnyWrite(t *testing.T) {
	t.Parallel()
	writes := life(t, nil)
	t.Logf("%d writes: %q", len(writes), writes)
	require.GreaterOrEqual(t, len(writes), 10)
	crash.AtEachWrite(t, len(writes), func(t *testing.T, at *crash.Cut) { life(t, at) })
}
