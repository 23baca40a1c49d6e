package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestPodsThatCannotBeMadeGiveThePlaceBack(t *testing.T) {
	for name, some := range map[string]bool{"none of them": false, "one of them": true} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(gang()).scheduled("a", "b")
			if some {
				w.pod(0, "a", corev1.PodRunning)
			}
			d := plan(w.observed)
			assert.Equal(t, bindPatience, d.again, "then they are looked for where the cache does not see")

			d = plan(w.at(startPatience - time.Millisecond).observed)
			assert.Equal(t, "Scheduled Admitted", short(d.status))
			assert.Contains(t, steps(d), "create 1 on b")
			assert.Equal(t, time.Millisecond, d.again)

			d = plan(w.at(startPatience).observed)
			assert.Equal(t, "Queued PodsNotStarted", short(d.status))
			assert.Contains(t, d.status.Message, "not all pods could be made within 30m0s")
			assert.Equal(t, int32(1), d.status.PreemptionCount)
		})
	}
}
