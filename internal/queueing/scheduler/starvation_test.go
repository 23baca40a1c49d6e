package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestEveryJobHasItsTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := snapshots(t)
		s := simulate(world)
		for i := range s.Running {
			s.ends[s.Running[i].UID] = s.Now.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "left")) * time.Second)
			s.runtime[s.Running[i].UID] = 5 * time.Second
		}
		for _, j := range world.Pending {
			s.runtime[j.UID] = time.Duration(rapid.IntRange(1, 9).Draw(t, "runs")) * time.Second
		}
		for range 500 {
			d := s.cycle()
			if err := check(s.Snapshot, scheduler.Decisions{Waiting: keep(s.Snapshot, d.Waiting)}); err != nil {
				t.Fatal(err)
			}
			at, more := s.next()
			if !more {
				break
			}
			s.Now = at
		}
		for _, w := range s.cycle().Waiting {
			if !never(w) {
				t.Fatalf("%s still waits: %s%s", w.UID, w.Message, describe(world))
			}
		}
	})
}

// keep the waits of jobs that are still pending.
func keep(s scheduler.Snapshot, all []scheduler.Wait) []scheduler.Wait {
	var kept []scheduler.Wait
	for _, w := range all {
		for _, j := range s.Pending {
			if j.UID == w.UID {
				kept = append(kept, w)
			}
		}
	}
	return kept
}

// never says that a job waits for something that does not come by itself.
func never(w scheduler.Wait) bool {
	switch w.Reason {
	case "QueueNotFound", "ClusterNotFound", "QueueSuspended":
		return true
	}
	for _, text := range []string{"exceeds the limit", "matches the selector", "even when no job runs"} {
		if strings.Contains(w.Message, text) {
			return true
		}
	}
	return false
}

// A gang that comes first starts at the latest when all have ended that ran before it, however many small jobs come.
func TestNoJobDelaysAGangThatComesFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []nodeBuilder
		count := rapid.IntRange(1, 5).Draw(t, "nodes")
		for i := range count {
			all = append(all, node(fmt.Sprintf("n%d", i), rapid.Int64Range(1, 8).Draw(t, "gpus")).label("zone", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")))
		}
		s := simulate(scheduler.Snapshot(nodes(all...)))
		small := func() {
			n := len(s.runtime)
			j := job(fmt.Sprintf("small%d", n)).members(rapid.IntRange(1, 3).Draw(t, "members")).gpus(rapid.Int64Range(1, 2).Draw(t, "each"))
			s.submit(scheduler.Job(j), time.Duration(rapid.IntRange(1, 20).Draw(t, "runs"))*time.Second)
		}
		for range rapid.IntRange(0, 10).Draw(t, "before") {
			small()
		}
		s.cycle()
		s.Pending = nil
		gang := job("gang").members(rapid.IntRange(1, 8).Draw(t, "gang")).gpus(rapid.Int64Range(1, 4).Draw(t, "gangGPUs"))
		if rapid.Bool().Draw(t, "topology") {
			gang = gang.topology("zone")
		}
		s.Now = s.Now.Add(time.Second)
		alone := scheduler.Snapshot{Now: s.Now, Nodes: s.Nodes, Pending: []scheduler.Job{scheduler.Job(gang)}}
		if len(scheduler.Schedule(alone).Admitted) == 0 {
			return
		}
		var last time.Time
		for _, end := range s.ends {
			if end.After(last) {
				last = end
			}
		}
		s.submit(scheduler.Job(gang), time.Second)
		s.Now = s.Now.Add(time.Second)
		for {
			for range rapid.IntRange(0, 3).Draw(t, "more") {
				small()
			}
			s.cycle()
			if _, ok := s.admitted["gang"]; ok {
				return
			}
			if !s.Now.Before(last) {
				t.Fatalf("the gang did not start though all that ran before it have ended%s", describe(s.Snapshot))
			}
			s.Now = s.Now.Add(time.Second)
		}
	})
}

// The same with a quota: a large job that comes first is not kept waiting by small ones of its queue, or of others that borrow.
func TestNoJobDelaysOneThatWaitsForQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := nodes(node("a", 100)).queues(queue("q").gpus(rapid.Int32Range(2, 8).Draw(t, "quota")), queue("p").gpus(rapid.Int32Range(0, 4).Draw(t, "other")))
		if rapid.Bool().Draw(t, "cohort") {
			w.Queues[0].Spec.Cohort, w.Queues[1].Spec.Cohort = "c", "c"
		}
		s := simulate(scheduler.Snapshot(w))
		small := func() {
			j := job(fmt.Sprintf("small%d", len(s.runtime))).gpus(rapid.Int64Range(1, 2).Draw(t, "gpus")).queue(rapid.SampledFrom([]string{"q", "p"}).Draw(t, "queue"))
			s.submit(scheduler.Job(j), time.Duration(rapid.IntRange(1, 20).Draw(t, "runs"))*time.Second)
		}
		for range rapid.IntRange(0, 10).Draw(t, "before") {
			small()
		}
		s.cycle()
		s.Pending = nil
		var last time.Time
		for _, end := range s.ends {
			if end.After(last) {
				last = end
			}
		}
		s.Now = s.Now.Add(time.Second)
		s.submit(scheduler.Job(job("large").queue("q").gpus(int64(*w.Queues[0].Spec.Quotas.GPUs))), time.Second)
		s.Now = s.Now.Add(time.Second)
		for {
			for range rapid.IntRange(0, 3).Draw(t, "more") {
				small()
			}
			s.cycle()
			if _, ok := s.admitted["large"]; ok {
				return
			}
			if !s.Now.Before(last) {
				t.Fatalf("the job did not start though all that ran before it have ended%s", describe(s.Snapshot))
			}
			s.Now = s.Now.Add(time.Second)
		}
	})
}

// A job of low priority starts in spite of a stream of jobs of higher priority.
func TestLowPriorityAges(t *testing.T) {
	s := simulate(scheduler.Snapshot(nodes(node("a", 2))))
	s.submit(scheduler.Job(job("low").gpus(2).priority(0)), time.Minute)
	for n := 0; ; n++ {
		for i := range 2 {
			s.submit(scheduler.Job(job(fmt.Sprintf("high%d-%d", n, i)).priority(100)), time.Minute)
		}
		s.cycle()
		if at, ok := s.admitted["low"]; ok {
			if waited := at.Sub(noon); waited < 90*time.Minute || waited > 102*time.Minute {
				t.Fatalf("waited for %s", waited)
			}
			return
		}
		if n > 300 {
			t.Fatal("never started")
		}
		s.Now = s.Now.Add(time.Minute)
	}
}
