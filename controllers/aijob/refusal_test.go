package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// A job that can never start must not take the place of others every minute.
func TestPausesAfterRefusalsGrow(t *testing.T) {
	for starts, least := range map[int32]time.Duration{
		0: 30 * time.Second, 1: time.Minute, 2: 2 * time.Minute, 5: 16 * time.Minute, 6: 30 * time.Minute, 7: 30 * time.Minute,
		1_000_000: 30 * time.Minute,
	} {
		w := worldOf(job())
		w.job.Status.FailedStarts, w.job.Status.PreemptionCount = starts, starts+3
		w.scheduled("a")
		status := refuse(w.observed, &failure{kind: refused, reason: "Forbidden"})
		assert.Equal(t, "Retrying Forbidden", short(status))
		assert.Equal(t, starts+1, status.FailedStarts)
		assert.Equal(t, starts+4, status.PreemptionCount)
		pause := status.NextRetryTime.Sub(w.now)
		assert.GreaterOrEqual(t, pause, least, "after %d", starts)
		assert.LessOrEqual(t, pause, time.Duration(float64(least)*(1+jitter))+time.Second, "after %d", starts)
	}
}

// A job that was often preempted, or lost its nodes, has not failed to start.
func TestLossesOfARunningJobDoNotMakeItPauseLonger(t *testing.T) {
	w := worldOf(job())
	w.job.Status.PreemptionCount = 6
	queued := func() *world {
		w.pods, w.job.Status.Phase, w.job.Status.Assignments, w.job.Status.NextRetryTime = nil, aiplatformv1alpha1.AIJobQueued, nil, nil
		return w
	}
	pause := func() time.Duration {
		queued()
		w.job.Status = refuse(w.scheduled("a").observed, &failure{kind: refused, reason: reasons.Forbidden})
		return w.job.Status.NextRetryTime.Sub(w.now).Truncate(30 * time.Second)
	}
	assert.Equal(t, 30*time.Second, pause())
	assert.Equal(t, time.Minute, pause())

	queued().running("a")
	assert.Zero(t, w.job.Status.FailedStarts)
	w.job.Status = refuse(w.observed, &failure{kind: lost, reason: reasons.NodeLost})
	assert.Zero(t, w.job.Status.FailedStarts, "it ran")
	assert.Equal(t, 30*time.Second, pause())

	// One that ends soon may never be reported as Running.
	code := int32(1)
	w.job.Status = refuse(queued().scheduled("a").observed, &failure{kind: counted, reason: reasons.ProgramFailed, exitCode: &code})
	assert.Zero(t, w.job.Status.FailedStarts)
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
