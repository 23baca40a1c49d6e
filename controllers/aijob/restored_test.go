package aijob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

func TestARestoredJobThatHadNotEndedIsQueuedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		before      *world
		preemptions int32
	}{
		"it ran":              {worldOf(gang()).running("a", "b"), 1},
		"its pods started":    {worldOf(gang()).scheduled("a", "b"), 1},
		"it waited for a try": {failedOnce(), 1},
		"it waited":           {queued(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.before.job.UID, test.before.job.Status.UID)
			w := &world{test.before.observed}
			w.job, w.pods, w.decided = w.job.DeepCopy(), nil, false
			w.job.UID += "-again"
			before := w.job.Status

			d := plan(w.observed)
			assert.Equal(t, "Queued RestoredFromBackup", short(d.status))
			assert.Contains(t, d.status.Message, "restored from a backup of the job with the UID "+string(before.UID))
			assert.Equal(t, w.job.UID, d.status.UID)
			assert.Equal(t, before.RetryCount, d.status.RetryCount)
			assert.Equal(t, test.preemptions, d.status.PreemptionCount, "its pods have other names than those before")
			assert.Empty(t, d.status.Assignments)
			assert.Nil(t, d.status.NextRetryTime)

			w.job.Status = d.status
			again := plan(w.observed)
			assert.Equal(t, d.status, again.status)
			assert.Empty(t, steps(again))
		})
	}
}

func failedOnce() *world {
	w := worldOf(job().Retries(3, 0)).running("a")
	exit(w.pods[0], 1, "", 0)
	w.job.Status = plan(w.observed).status
	return w
}

func queued() *world {
	w := worldOf(job()).waits(3, reasons.InsufficientCapacity, "needs 4 GPUs")
	w.job.Status = plan(w.observed).status
	return w
}

func TestARestoredJobThatHadEndedHasEnded(t *testing.T) {
	w := worldOf(job()).running("a")
	exit(w.pods[0], 0, `{"accuracy": 0.9}`, 0)
	w.job.Status = plan(w.observed).status
	w.job.UID, w.pods = "another", nil

	d := plan(w.observed)
	assert.Equal(t, "Succeeded Completed", short(d.status))
	assert.Equal(t, "0.9", d.status.Outputs["accuracy"])
	assert.Equal(t, w.job.UID, d.status.UID)
	assert.Empty(t, steps(d))
}

func TestAJobThatEndedBeforeItsStatusNamedItIsNotWritten(t *testing.T) {
	w := worldOf(job().Status(func(s *aiplatformv1alpha1.AIJobStatus) { s.Phase = aiplatformv1alpha1.AIJobSucceeded }))
	assert.Empty(t, plan(w.observed).status.UID)
}
