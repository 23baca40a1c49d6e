package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestWhoLosesItsPlace(t *testing.T) {
	q := queue("q").preempts()
	high := job("high").queue("q").priority(90)
	low := func(name string) jobBuilder { return job(name).queue("q").priority(10) }
	for name, c := range map[string]struct {
		world   world
		victims []string
	}{
		"no job when there is room":                         {nodes(node("a", 2)).queues(q).running(low("r").runs("a")).pending(high), []string{}},
		"a lower priority":                                  {nodes(node("a", 1)).queues(q).running(low("r").runs("a")).pending(high), []string{"r"}},
		"no equal priority":                                 {nodes(node("a", 1)).queues(q).running(low("r").priority(90).runs("a")).pending(high), []string{}},
		"no higher priority":                                {nodes(node("a", 1)).queues(q).running(low("r").priority(91).runs("a")).pending(high), []string{}},
		"no job that keeps its place":                       {nodes(node("a", 1)).queues(q).running(low("r").keeps().runs("a")).pending(high), []string{}},
		"no job when the queue does not":                    {nodes(node("a", 1)).queues(queue("q")).running(low("r").runs("a")).pending(high), []string{}},
		"no job for a job without a queue":                  {nodes(node("a", 1)).running(low("r").runs("a")).pending(job("high").priority(90)), []string{}},
		"jobs of other queues":                              {nodes(node("a", 1)).queues(q, queue("p")).running(low("r").queue("p").runs("a")).pending(high), []string{"r"}},
		"jobs without a queue":                              {nodes(node("a", 1)).queues(q).running(low("r").queue("").runs("a")).pending(high), []string{"r"}},
		"no job for nothing":                                {nodes(node("a", 2)).queues(q).running(low("r").runs("a"), low("k").keeps().runs("a")).pending(high.gpus(2)), []string{}},
		"no job for what no node has":                       {nodes(node("a", 2)).queues(q).running(low("r").runs("a")).pending(high.gpus(3)), []string{}},
		"the lowest priority":                               {nodes(node("a", 2)).queues(q).running(low("r").runs("a"), low("s").priority(20).runs("a")).pending(high), []string{"r"}},
		"the youngest of equals":                            {nodes(node("a", 2)).queues(q).running(low("old").runs("a"), low("young").since(time.Second).at("a")).pending(high), []string{"young"}},
		"one large rather than four small":                  {nodes(node("a", 4), node("b", 4)).queues(q).running(low("1").runs("a"), low("2").runs("a"), low("3").runs("a"), low("4").runs("a"), low("large").gpus(4).runs("b")).pending(high.gpus(4)), []string{"large"}},
		"fewer where some is free":                          {nodes(node("a", 4), node("b", 4)).queues(q).running(low("1").runs("a"), low("2").runs("a"), low("3").runs("a"), low("4").runs("a"), low("5").runs("b"), low("6").runs("b")).pending(high.gpus(4)), []string{"5", "6"}},
		"several lower rather than a higher":                {nodes(node("a", 2), node("b", 2)).queues(q).running(low("1").runs("a"), low("2").runs("a"), low("large").priority(20).gpus(2).runs("b")).pending(high.gpus(2)), []string{"1", "2"}},
		"a whole gang for a part of it":                     {nodes(node("a", 1), node("b", 1)).queues(q).running(low("g").members(2).runs("a", "b")).pending(high), []string{"g"}},
		"many for a gang":                                   {nodes(node("a", 2), node("b", 2)).queues(q).running(low("1").runs("a"), low("2").runs("a"), low("3").runs("b")).pending(high.members(4)), []string{"1", "2", "3"}},
		"what is free counts":                               {nodes(node("a", 2), node("b", 2)).queues(q).running(low("1").runs("a"), low("2").runs("a"), low("3").runs("b")).pending(high.members(2)), []string{"3"}},
		"only on nodes that match":                          {nodes(node("a", 1), node("b", 1).label("x", "y")).queues(q).running(low("1").priority(1).runs("a"), low("2").runs("b")).pending(high.selector("x", "y")), []string{"2"}},
		"only in one zone":                                  {nodes(node("a", 1).label("z", "1"), node("b", 1).label("z", "2"), node("c", 1).label("z", "2")).queues(q).running(low("1").priority(1).runs("a"), low("2").runs("b"), low("3").keeps().runs("a")).pending(high.members(2).topology("z")), []string{"2"}},
		"for the quota of the queue":                        {nodes(node("a", 9)).queues(q.gpus(2)).running(low("1").runs("a"), low("2").priority(5).runs("a"), low("other").queue("").priority(1).runs("a")).pending(high), []string{"2"}},
		"for a limit of jobs":                               {nodes(node("a", 9)).queues(q.maxJobs(1)).running(low("1").gpus(5).runs("a")).pending(high), []string{"1"}},
		"for the limit of the user":                         {nodes(node("a", 9)).queues(q.perUser(1)).running(low("mine").priority(20).runs("a"), low("theirs").in("n", "v").runs("a")).pending(high), []string{"mine"}},
		"for the limit of the namespace":                    {nodes(node("a", 9)).queues(q.perNamespace(1)).running(low("mine").priority(20).runs("a"), low("theirs").in("m", "u").runs("a")).pending(high), []string{"mine"}},
		"for the limit of the cluster":                      {nodes(node("a", 9).label("c", "x")).queues(q).clusters(cluster("x", "c", "x").maxGPUs(1)).running(low("in").priority(20).cluster("x").runs("a"), low("out").runs("a")).pending(high.cluster("x")), []string{"in"}},
		"who borrowed the queue's own quota":                {nodes(node("a", 9)).queues(q.gpus(1).cohort("c"), queue("p").gpus(1).cohort("c")).running(low("p1").queue("p").runs("a"), low("p2").queue("p").runs("a")).pending(high), []string{"p1"}},
		"no job of its own quota":                           {nodes(node("a", 9)).queues(q.gpus(1).cohort("c"), queue("p").gpus(1).cohort("c")).running(low("p1").queue("p").runs("a"), low("q1").priority(95).runs("a")).pending(high), []string{}},
		"no job of its own quota for room that is borrowed": {nodes(node("a", 2)).queues(q.gpus(1).cohort("c"), queue("p").gpus(4).cohort("c")).running(low("p1").queue("p").runs("a"), low("q1").priority(95).runs("a")).pending(high), []string{}},
		"no job while some are going":                       {nodes(node("a", 2)).queues(q).running(low("1").stopping().runs("a"), low("2").runs("a")).pending(high), []string{}},
		"one more when those that go are not enough":        {nodes(node("a", 2)).queues(q).running(low("1").stopping().runs("a"), low("2").runs("a")).pending(high.gpus(2)), []string{"2"}},
		"no job that was before it in the order":            {nodes(node("a", 1)).queues(q).running(low("aged").waits(3 * time.Hour).admitted(time.Minute).at("a")).pending(high.waits(0)), []string{}},
		"in a fifo queue the first":                         {nodes(node("a", 1)).queues(q.algorithm("fifo")).running(low("r").runs("a")).pending(high), []string{"r"}},
		"in a fifo queue only the first":                    {nodes(node("a", 1)).queues(q.algorithm("fifo")).running(low("r").runs("a")).pending(high, job("older").queue("q").priority(1).waits(time.Hour)), []string{}},
		"no one with a smaller share":                       {nodes(node("a", 2)).queues(q.algorithm("fair-share")).running(low("r").in("poor", "u").runs("a"), job("x").in("rich", "u").queue("q").keeps().runs("a")).pending(high.in("rich", "u")), []string{}},
		"someone with a larger share":                       {nodes(node("a", 2)).queues(q.algorithm("fair-share")).running(low("r").in("rich", "u").runs("a"), low("s").in("rich", "u").runs("a")).pending(high.in("poor", "u")), []string{"s"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := c.world.schedule()
			assert.Equal(t, c.victims, out.preempted())
			for _, p := range out.Preempted {
				assert.Equal(t, types.UID("high"), p.For)
				assert.Equal(t, "WaitingForPreemption", out.wait("high").Reason)
			}
		})
	}
}

func TestRoomOfVictimsIsKept(t *testing.T) {
	w := nodes(node("a", 2)).queues(queue("q").preempts())
	low := job("low").queue("q").priority(10)
	w = w.running(low.gpus(2).runs("a")).pending(job("high").queue("q").priority(90).gpus(2))
	first := w.schedule()
	assert.Equal(t, []string{"low"}, first.preempted())
	assert.Equal(t, "waiting for 1 lower-priority job to be preempted", first.wait("high").Message)

	t.Run("while they stop, no further are stopped and no others let in", func(t *testing.T) {
		w := w
		w.Running = []scheduler.Job{scheduler.Job(low.members(1).stopping().runs("a"))}
		out := w.pending(job("small").queue("q").priority(20)).schedule()
		assert.Empty(t, out.preempted())
		assert.Empty(t, out.admitted())
		assert.Equal(t, "waiting for 1 job to stop", out.wait("high").Message)
		assert.Equal(t, "WaitingBehindGang", out.wait("small").Reason)
	})
	t.Run("once they are gone, the job has it, not who lost it", func(t *testing.T) {
		w := w
		w.Running = nil
		out := w.pending(low.gpus(2).waits(0)).schedule()
		assert.Equal(t, []string{"high"}, out.admitted())
	})
}

func TestTwoPreemptorsTakeTwoPlaces(t *testing.T) {
	low := job("1").queue("q").priority(10)
	out := nodes(node("a", 1), node("b", 1)).queues(queue("q").preempts()).running(low.runs("a"), job("2").queue("q").priority(11).runs("b")).
		pending(job("x").queue("q").priority(90), job("y").queue("q").priority(80), job("z").queue("q").priority(70)).schedule()
	assert.Equal(t, []scheduler.Preemption{{UID: "1", For: "x"}, {UID: "2", For: "y"}}, out.Preempted)
	assert.Equal(t, "InsufficientCapacity", out.wait("z").Reason)
}

func TestNoJobIsStoppedForWhatAnEarlierJobWouldTake(t *testing.T) {
	out := nodes(node("a", 1)).queues(queue("p"), queue("q").preempts()).running(job("low").priority(1).runs("a")).
		pending(job("first").queue("p").priority(95), job("second").queue("q").priority(90)).schedule()
	assert.Empty(t, out.preempted())
}

// Once the job of namespace n has stopped, both namespaces hold nothing, and the older job comes first for the queue's one place.
func TestNoJobIsStoppedWhenSharesChangeBeforeItsPlaceIsTaken(t *testing.T) {
	out := nodes(node("a", 1).label("pool", "a"), node("b", 1)).queues(queue("q").preempts().algorithm("fair-share").maxJobs(1)).
		running(job("low").priority(10).runs("a"), job("stops").queue("q").stopping().runs("b")).
		pending(job("high").in("m", "u").queue("q").priority(90).selector("pool", "a"), job("older").queue("q").waits(time.Hour)).schedule()
	assert.Empty(t, out.preempted())
	assert.Equal(t, "AIJobQueue q: maxConcurrency reached (1)", out.wait("high").Message)
}

func TestQuotaOnlyNeedsNoNodes(t *testing.T) {
	none := job("new").queue("q").priority(90).members(0)
	out := nodes().queues(queue("q").preempts().maxJobs(1)).running(job("old").queue("q").priority(10).members(0)).pending(none).schedule()
	assert.Equal(t, []string{"old"}, out.preempted())
	out = nodes().queues(queue("q").maxJobs(1)).running(job("old").queue("q").members(0).stopping()).pending(none).schedule()
	assert.Equal(t, "waiting for stopping jobs to release their quota", out.wait("new").Message)
}

func TestNoJobRaisesTheShareOfAJobForWhichOthersStop(t *testing.T) {
	out := nodes(node("a", 2), node("b", 1)).queues(queue("q").preempts().algorithm("fair-share")).running(job("low").priority(10).gpus(2).runs("a")).
		pending(job("high").queue("q").priority(90).gpus(2), job("small").queue("q"), job("other").queue("q").in("m", "u")).schedule()
	assert.Equal(t, []string{"low"}, out.preempted())
	assert.Equal(t, []string{"other"}, out.admitted())
	assert.Equal(t, "behind AIJob n/high of the same namespace, for which jobs are being preempted", out.wait("small").Message)
}
