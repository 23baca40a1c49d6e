package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
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
		status := refuse(w.observed, &failure{kind: refused, reason: "Forbidden"})
		assert.Equal(t, "Retrying Forbidden", short(status))
		assert.Equal(t, losses+1, status.PreemptionCount)
		pause := status.NextRetryTime.Sub(w.now)
		assert.GreaterOrEqual(t, pause, least, "after %d", losses)
		assert.LessOrEqual(t, pause, time.Duration(float64(least)*(1+jitter))+time.Second, "after %d", losses)
	}
}

// It has waited for its turn already, and did not get to run.
func TestAJobThatCouldNotStartKeepsItsAge(t *testing.T) {
	for name, reason := range map[string]string{"no pods": reasons.ResourceQuotaExceeded, "no node": reasons.Unschedulable} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(job()).scheduled("a")
			since := w.job.Status.QueuedTime
			found := &failure{kind: refused, reason: reason}
			if reason == reasons.Unschedulable {
				found.kind = lost
			}
			w.job.Status = refuse(w.observed, found)
			d := plan(w.at(time.Hour).observed)
			assert.Equal(t, "Queued Retrying", short(d.status))
			assert.Equal(t, since, d.status.QueuedTime)
		})
	}
}

func TestConsequencesOfRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		refusal child.Refusal
		want    string
		kind    consequence
	}{
		"Pod Security": {child.Refusal{Reason: reasons.PodSecurityViolation}, reasons.PodSecurityViolation, hopeless},
		"invalid":      {child.Refusal{Reason: reasons.InvalidSpec}, reasons.InvalidSpec, hopeless},
		"policy":       {child.Refusal{Reason: reasons.Forbidden}, reasons.Forbidden, refused},
		"name":         {child.Refusal{Reason: reasons.ObjectConflict}, reasons.ObjectConflict, refused},
		"quota": {child.Refusal{Reason: reasons.ResourceQuotaExceeded, Message: "exceeded quota: q, requested: requests.cpu=2,pods=1, " +
			"used: requests.cpu=1,pods=0, limited: requests.cpu=4,pods=10; free or raise the quota"}, reasons.ResourceQuotaExceeded, refused},
		"quota less than all": {child.Refusal{Reason: reasons.ResourceQuotaExceeded, Message: "exceeded quota: q, requested: " +
			"requests.cpu=2,pods=1, used: requests.cpu=1,pods=0, limited: requests.cpu=3,pods=10; free it"}, reasons.QuotaTooSmall, hopeless},
	} {
		t.Run(name, func(t *testing.T) {
			found := failureOfRefusal(&test.refusal, 2)
			assert.Equal(t, test.want, found.reason)
			assert.Equal(t, test.kind, found.kind)
		})
	}
}
