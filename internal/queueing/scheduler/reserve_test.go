package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestBackfill(t *testing.T) {
	gang := job("gang").members(2).gpus(4).priority(90)
	small := job("small").priority(10)
	for name, c := range map[string]struct {
		world    world
		admitted []string
	}{
		"small jobs leave a gang its place": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(3).runs("a")).
			pending(gang, small), []string{}},
		"small jobs use nodes that it does not need": {nodes(node("a", 4), node("b", 4), node("c", 4)).running(job("r").gpus(3).runs("a"), job("s").gpus(3).since(time.Second).at("b")).
			pending(gang, small, job("other").priority(9)), []string{"small"}},
		"small jobs use what it leaves of its nodes": {nodes(node("a", 5), node("b", 5)).running(job("r").gpus(3).runs("a"), job("s").gpus(3).runs("b")).
			pending(gang, small, job("small2").priority(9), job("small3").priority(8)), []string{"small", "small2"}},
		"what it does not ask for is free for all": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(3).runs("a")).
			pending(gang, small.needs(cpus(64)), job("small2").needs(cpus(64)).priority(9)), []string{"small", "small2"}},
		"nodes are kept that free up first": {nodes(node("a", 4), node("b", 4), node("c", 4)).
			running(job("old").gpus(2).since(time.Hour).at("b"), job("older").gpus(2).since(2*time.Hour).at("c"), job("new").gpus(3).since(time.Second).at("a")).
			pending(gang, small, job("small2").priority(9)), []string{"small"}},
		"what never fits keeps nothing": {nodes(node("a", 4), node("b", 4)).pending(gang.gpus(5), small), []string{"small"}},
		"what waits for quota keeps no nodes": {nodes(node("a", 4), node("b", 4)).queues(queue("q").gpus(8)).running(job("r").queue("q").needs(scheduler.Resources{GPUs: 1}).runs("a")).
			pending(gang.queue("q"), small), []string{"small"}},
		"quota that a job waits for is kept": {nodes(node("a", 40)).queues(queue("q").gpus(8)).running(job("r").queue("q").runs("a")).
			pending(gang.queue("q"), small.queue("q"), job("cpus").needs(cpus(1)).queue("q")), []string{"cpus"}},
		"what is more than the quota keeps nothing": {nodes(node("a", 40)).queues(queue("q").gpus(7)).pending(gang.queue("q"), small.queue("q")), []string{"small"}},
		"a user's limit holds back the user only": {nodes(node("a", 40)).queues(queue("q").gpus(8).perUser(1)).running(job("r").queue("q").runs("a")).
			pending(gang.queue("q").gpus(1), small.queue("q"), job("theirs").in("n", "v").queue("q")), []string{"theirs"}},
		"cohorts": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c"), queue("p").gpus(4).cohort("c")).
			pending(job("1").queue("q").gpus(4), job("2").queue("q").gpus(3), job("3").queue("q").gpus(2), job("4").queue("q").gpus(1)), []string{"1", "2"}},
		"borrowing ends at its limit": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c").borrows(1), queue("p").gpus(4).cohort("c")).
			pending(job("1").queue("q").gpus(4), job("2").queue("q").gpus(1), job("3").queue("q").gpus(1)), []string{"1", "2"}},
		"what is lent does not count twice": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c"), queue("p").gpus(4).cohort("c")).
			running(job("r").queue("q").gpus(7).runs("a")).pending(job("1").queue("p").gpus(2), job("2").queue("p").gpus(1).priority(1)), []string{}},
		"without a cohort nothing is borrowed": {nodes(node("a", 40)).queues(queue("q").gpus(4), queue("p").gpus(4)).pending(job("1").queue("q").gpus(5)), []string{}},
		"a suspended queue":                    {nodes(node("a", 40)).queues(queue("q").suspended()).pending(small.queue("q")), []string{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.admitted, c.world.schedule().admitted()) })
	}
}
