package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A job that can never start must not take the place of others every minute.
func TestPausesAfterRefusalsGrow(t *testing.T) {
	for losses, least := range map[int32]time.Duration{
		0: 30 * time.Second, 1: time.Minute, 2: 2 * time.Minute, 5: 16 * time.Minute, 6: 30 * time.Minute, 7: 30 * time.Minute,
		1_000_000: 30 * time.Minute,
	} {
		w := worldOf(job())
		w.job.Status.PreemptionCount = losses
		w.scheduled("a")
		status := refuse(w.observed, &failure{kind: refused, reason: "PodRejected"})
		assert.Equal(t, "Retrying PodRejected", short(status))
		assert.Equal(t, losses+1, status.PreemptionCount)
		pause := status.NextRetryTime.Sub(w.now)
		assert.GreaterOrEqual(t, pause, least, "after %d", losses)
		assert.LessOrEqual(t, pause, time.Duration(float64(least)*(1+jitter))+time.Second, "after %d", losses)
	}
}
