package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Pods that have succeeded may be cleared away, by the cluster's own garbage collector or with their node.
func TestMembersWhosePodsWereClearedAwayHaveSucceeded(t *testing.T) {
	three := func(succeeded int) *world {
		w := worldOf(gang().Gang(3)).running("a", "b", "c")
		for _, pod := range w.pods[:succeeded] {
			exit(pod, 0, "", time.Minute)
		}
		w.job.Status = plan(w.at(time.Minute).observed).status
		return w
	}

	w := three(2)
	w.pods = w.pods[2:]
	d := plan(w.at(2 * time.Minute).observed)
	assert.Equal(t, "Running Running", short(d.status))
	assert.Equal(t, int32(2), d.status.Members.Succeeded)
	w.job.Status = d.status
	exit(w.pods[0], 0, `{"answer": 42}`, 3*time.Minute)
	d = plan(w.at(3 * time.Minute).observed)
	assert.Equal(t, "Succeeded Completed", short(d.status))
	assert.Equal(t, map[string]string{"answer": "42"}, d.status.Outputs)

	w.job.Status.StartTime = nil
	assert.Equal(t, "Succeeded Completed", short(plan(w.observed).status), "nothing is known of member 0")

	w = three(1)
	w.pods = w.pods[2:]
	d = plan(w.at(2 * time.Minute).observed)
	assert.Equal(t, "Queued PodDeleted", short(d.status), "one more is gone than had succeeded")
	assert.Contains(t, d.status.Message, "2 pods are gone; only 1 of them had succeeded")

	w = three(1)
	w.pods = w.pods[:2]
	assert.Equal(t, "Queued PodDeleted", short(plan(w.at(2*time.Minute).observed).status), "the one that had succeeded is there")
}
