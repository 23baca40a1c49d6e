package scheduler_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func extended(names ...corev1.ResourceName) scheduler.Resources {
	r := scheduler.Resources{Extended: map[corev1.ResourceName]int64{}}
	for _, name := range names {
		r.Extended[name] = 1
	}
	return r
}

// One job can ask for very many resources that no node has. That must cost the others nothing.
func TestResourcesThatNoNodeHas(t *testing.T) {
	var names []corev1.ResourceName
	for i := range 30_000 {
		names = append(names, corev1.ResourceName(fmt.Sprintf("example.com/unknown-%05d", i)))
	}
	var all []nodeBuilder
	for i := range 10 {
		all = append(all, node(fmt.Sprintf("n%d", i), 8))
	}
	w := nodes(all...).pending(job("greedy").needs(extended(names...)), job("ordinary"))

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := w.schedule()
	runtime.ReadMemStats(&after)

	assert.Equal(t, []string{"ordinary"}, o.admitted())
	assert.Equal(t, "InsufficientCapacity", o.wait("greedy").Reason)
	assert.Equal(t, "example.com/unknown-00000: no node has it", o.wait("greedy").Message)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes; a column for each name takes 2.4 MB for each of several tables")
}

func TestResourcesThatOnlySomeNodeHas(t *testing.T) {
	tpu := node("a", 8).room(scheduler.Resources{Pods: 9, Extended: map[corev1.ResourceName]int64{"example.com/tpu": 1, "example.com/none": 0}})
	o := nodes(tpu, node("b", 8)).pending(
		job("known").needs(extended("example.com/tpu")),
		job("both").needs(extended("example.com/tpu", "example.com/x")),
		job("x").needs(extended("example.com/x")), job("y").needs(extended("example.com/y")), job("none").needs(extended("example.com/none")),
		job("zero").needs(scheduler.Resources{Extended: map[corev1.ResourceName]int64{"example.com/x": 0}}),
		job("second").gpus(1).and(1, extended("example.com/x")),
	).schedule()
	assert.ElementsMatch(t, []string{"known", "zero"}, o.admitted())
	for name, missing := range map[string]string{"both": "x", "x": "x", "y": "y", "none": "none", "second": "x"} {
		assert.Equal(t, "example.com/"+missing+": no node has it", o.wait(name).Message, name)
	}
}
