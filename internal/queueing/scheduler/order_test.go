package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOrder(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		world world
		order []string
	}{
		"the highest priority": {nodes(node("a", 9)).queues(queue("q")).pending(
			job("low").queue("q").priority(10), job("high").queue("q").priority(90), job("middle").queue("q")), []string{"high", "middle", "low"}},
		"the oldest of equals": {nodes(node("a", 9)).queues(queue("q")).pending(
			job("new").queue("q"), job("old").queue("q").waits(2*time.Minute)), []string{"old", "new"}},
		"a minute counts as much as one of priority": {nodes(node("a", 9)).queues(queue("q")).pending(
			job("a").queue("q").priority(60).waits(0), job("b").queue("q").priority(50).waits(9*time.Minute),
			job("c").queue("q").priority(50).waits(11*time.Minute)), []string{"c", "a", "b"}},
		"who waits for a day comes first": {nodes(node("a", 9)).queues(queue("q")).pending(
			job("huge").queue("q").priority(1e9), job("late").queue("q").priority(0).waits(day), job("later").queue("q").priority(0).waits(day+time.Second)),
			[]string{"later", "late", "huge"}},
		"a time to come counts as now": {nodes(node("a", 9)).pending(job("b").waits(-day), job("a").waits(0)), []string{"a", "b"}},
		"one that was evicted waits again": {nodes(node("a", 9)).queues(queue("q")).pending(
			jobBuilder(func() jobBuilder { j := job("lost").queue("q").waits(time.Hour); j.AdmittedAt = noon; return j }()),
			job("new").queue("q").waits(time.Minute)), []string{"new", "lost"}},
		"first in, first out": {nodes(node("a", 9)).queues(queue("q").algorithm("fifo")).pending(
			job("high").queue("q").priority(90), job("old").queue("q").priority(1).waits(2*time.Minute)), []string{"old", "high"}},
		"between queues by priority": {nodes(node("a", 9)).queues(queue("p"), queue("q")).pending(
			job("p1").queue("p").priority(10), job("q1").queue("q").priority(20), job("none").priority(15)), []string{"q1", "none", "p1"}},
		"own quota before what is borrowed": {nodes(node("a", 9)).queues(queue("p").gpus(1).cohort("c"), queue("q").gpus(4).cohort("c")).pending(
			job("p1").queue("p").priority(90), job("p2").queue("p").priority(89), job("q1").queue("q").priority(1)), []string{"p1", "q1", "p2"}},
		"shares of namespaces": {nodes(node("a", 9)).queues(queue("q").algorithm("fair-share")).
			running(job("r").queue("q").in("busy", "u").runs("a")).
			pending(job("b1").queue("q").in("busy", "u").priority(90), job("i1").queue("q").in("idle", "u"), job("i2").queue("q").in("idle", "u"),
				job("i3").queue("q").in("idle", "u")), []string{"i1", "b1", "i2", "i3"}},
		"shares of users in a namespace": {nodes(node("a", 9)).queues(queue("q").algorithm("fair-share")).
			running(job("r").queue("q").in("n", "busy").runs("a")).
			pending(job("b1").queue("q").in("n", "busy").priority(90), job("i1").queue("q").in("n", "idle"), job("i2").queue("q").in("n", "idle")),
			[]string{"i1", "b1", "i2"}},
		"the dominant share counts": {nodes(node("a", 8)).queues(queue("q").algorithm("fair-share")).
			running(job("cpu").queue("q").in("cpus", "u").needs(cpus(32)).runs("a"), job("gpu").queue("q").in("gpus", "u").gpus(2).runs("a")).
			pending(job("c").queue("q").in("cpus", "u"), job("g").queue("q").in("gpus", "u")), []string{"g", "c"}},
		"late ones before shares": {nodes(node("a", 9)).queues(queue("q").algorithm("fair-share")).
			running(job("r").queue("q").in("busy", "u").runs("a")).
			pending(job("late").queue("q").in("busy", "u").waits(day), job("i").queue("q").in("idle", "u")), []string{"late", "i"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.order, c.world.schedule().admitted()) })
	}
}

func TestPositionsCountInEachQueue(t *testing.T) {
	out := nodes().queues(queue("p"), queue("q")).pending(job("p1").queue("p").priority(9), job("p2").queue("p").priority(8), job("q1").queue("q"),
		job("lost").queue("unknown"), job("alone")).schedule()
	for name, position := range map[string]int{"p1": 1, "p2": 2, "q1": 1, "lost": 1, "alone": 1} {
		assert.Equal(t, position, out.wait(name).Position, name)
	}
}
