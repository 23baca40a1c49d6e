package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestABusyManagerDoesNotTellOfShortRuns(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*aiplatformv1alpha1.AIJobSpec)
		busy   bool
		after  time.Duration
		ended  bool
		want   string
		again  time.Duration
	}{
		"busy, too early":          {busy: true, after: 3 * time.Second, want: "Scheduled AdmittedByQueue", again: 7 * time.Second},
		"busy, it still runs":      {busy: true, after: 10 * time.Second, want: "Running Running"},
		"busy, it has ended":       {busy: true, after: 300 * time.Millisecond, ended: true, want: "Succeeded Completed"},
		"with little else to tell": {after: 0, want: "Running Running"},
		"busy, time is limited": {
			change: func(spec *aiplatformv1alpha1.AIJobSpec) { spec.TimeoutSeconds = ptr.To[int64](60) }, busy: true, want: "Running Running",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := job()
			if test.change != nil {
				b.Spec(test.change)
			}
			w := worldOf(b).scheduled("a")
			w.written, w.busy = w.now, test.busy
			pod := w.pod(0, "a", corev1.PodRunning)
			if test.ended {
				exit(pod, 0, "", test.after)
			}
			d := plan(w.at(test.after).observed)
			assert.Equal(t, test.want, short(d.status))
			assert.Equal(t, test.again, d.again)
			assert.Empty(t, steps(d))
			if test.ended {
				assert.Equal(t, builders.Noon, d.status.StartTime.UTC(), "as the pod tells it")
			}
		})
	}
}

func TestABusyManagerDoesNotTellOfPlacesInTheQueue(t *testing.T) {
	w := worldOf(job()).waits(5, "InsufficientCapacity", "needs 4, 2 are free")
	w.job.Status = plan(w.observed).status
	w.written, w.busy = w.now, true
	d := plan(w.at(time.Hour).waits(2, "InsufficientCapacity", "needs 4, 2 are free").observed)
	assert.Equal(t, int32(5), d.status.QueuePosition)
	assert.Equal(t, time.Minute, d.again)
}

func TestManyWritesInASecondAreBusy(t *testing.T) {
	var l load
	write := func(count int, now time.Time) {
		for range count {
			l.wrote(now, false)
		}
	}
	busy := func(now time.Time) bool {
		is, _ := l.busy(now)
		return is
	}
	second := func(n float64) time.Time { return builders.Noon.Add(time.Duration(n * float64(time.Second))) }
	assert.False(t, busy(second(0)))
	write(busyWrites-1, second(0.1))
	assert.False(t, busy(second(0.2)))
	write(1, second(0.3))
	assert.True(t, busy(second(0.4)))
	assert.True(t, busy(second(1.9)), "as long as the second before had as many")
	assert.False(t, busy(second(2)))
	write(busyWrites, second(3))
	assert.False(t, busy(second(5)), "the second before had none")
	write(busyWrites, second(8))
	write(1, second(7.9))
	assert.True(t, busy(second(8.1)), "what began a second before begins no new one")
}

func TestThereIsTimeForSomeStatusesThatCouldWait(t *testing.T) {
	var l load
	for range spareWrites {
		_, spare := l.busy(builders.Noon)
		assert.True(t, spare)
		l.wrote(builders.Noon, true)
		l.wrote(builders.Noon.Add(-time.Second), false)
	}
	for range 2 * busyWrites {
		l.wrote(builders.Noon, true)
	}
	busy, spare := l.busy(builders.Noon)
	assert.False(t, spare)
	assert.False(t, busy, "what can wait does not count as load")
	_, spare = l.busy(builders.Noon.Add(time.Second))
	assert.True(t, spare)
}

func TestABusyManagerTellsLaterThatNewJobsWait(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		want   string
	}{
		"it has no time":          {want: "Pending"},
		"it has time for a few":   {change: func(w *world) { w.spare = true }, want: "Queued InsufficientCapacity"},
		"it is not busy":          {change: func(w *world) { w.busy = false }, want: "Queued InsufficientCapacity"},
		"the user must act":       {change: func(w *world) { w.waits(1, "QueueNotFound", "create it") }, want: "Queued QueueNotFound"},
		"the job waits again":     {change: func(w *world) { w.job.Status.Phase = "Queued" }, want: "Queued InsufficientCapacity"},
		"nothing was decided yet": {change: func(w *world) { w.decided = false; w.at(time.Minute) }, want: "Pending"},
		"it has its place":        {change: func(w *world) { w.admitted("a") }, want: "Scheduled AdmittedByQueue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(job()).waits(3, "InsufficientCapacity", "needs 4, 2 are free")
			w.job.Status.Phase = "Pending"
			w.busy = true
			if test.change != nil {
				test.change(w)
			}
			d := plan(w.observed)
			assert.Equal(t, test.want, short(d.status))
			if test.want == "Pending" {
				assert.Equal(t, w.job.Status, d.status)
				assert.Equal(t, farInterval, d.again)
			}
		})
	}
}
