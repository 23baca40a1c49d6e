package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/test/builders"
)

func TestABusyManagerDoesNotTellOfShortRuns(t *testing.T) {
	for name, test := range map[string]struct {
		busy  bool
		after time.Duration
		ended bool
		want  string
		again time.Duration
	}{
		"busy, too early":          {busy: true, after: 300 * time.Millisecond, want: "Scheduled Admitted", again: 700 * time.Millisecond},
		"busy, it still runs":      {busy: true, after: time.Second, want: "Running Running"},
		"busy, it has ended":       {busy: true, after: 300 * time.Millisecond, ended: true, want: "Succeeded Completed"},
		"with little else to tell": {after: 0, want: "Running Running"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(job()).scheduled("a")
			w.told, w.busy = w.now, test.busy
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
	w.told, w.busy = w.now, true
	d := plan(w.at(time.Hour).waits(2, "InsufficientCapacity", "needs 4, 2 are free").observed)
	assert.Equal(t, int32(5), d.status.QueuePosition)
	assert.Equal(t, time.Minute, d.again)
}

func TestManyWritesInASecondAreBusy(t *testing.T) {
	var m memory
	key := types.NamespacedName{Name: "a"}
	write := func(count int, now time.Time) {
		for range count {
			m.tell(key, now)
		}
	}
	second := func(n float64) time.Time { return builders.Noon.Add(time.Duration(n * float64(time.Second))) }
	assert.False(t, m.busy(second(0)))
	write(busyWrites-1, second(0.1))
	assert.False(t, m.busy(second(0.2)))
	write(1, second(0.3))
	assert.True(t, m.busy(second(0.4)))
	assert.True(t, m.busy(second(1.9)), "as long as the second before had as many")
	assert.False(t, m.busy(second(2)))
	write(busyWrites, second(3))
	assert.False(t, m.busy(second(5)), "the second before had none")
}
