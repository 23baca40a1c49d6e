package scheduler_test

import (
	"container/heap"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
)

// TestBaselineOfQueues runs the scenario by which Kueue measures its scheduler for one of the 5 cohorts, which have nothing to do
// with one another: 3,000 jobs in 6 queues. What the queues may hold at all allows no less than 66 seconds.
func TestBaselineOfQueues(t *testing.T) { runBaseline(t, 1) }

// BenchmarkBaselineOfQueues runs all of it: 15,000 jobs in 30 queues.
func BenchmarkBaselineOfQueues(b *testing.B) {
	for b.Loop() {
		runBaseline(b, baseline.Cohorts)
	}
}

func runBaseline(t testing.TB, cohorts int) {
	classes := baseline.Classes()
	w := world{Now: noon}
	// Room is not what is measured: one node has it all.
	w.Nodes = []scheduler.Node{scheduler.Node(node("n", 0).room(scheduler.Resources{MilliCPU: 1e9, Pods: 1e6}))}
	for c := range cohorts {
		for q := range baseline.Queues {
			w = w.queues(queue(baseline.Queue(c, q)).cohort(baseline.Cohort(c)).quota(cpuOf(baseline.Quota)).borrowing(cpuOf(baseline.Borrowing)))
		}
	}
	arrivals := map[time.Time][]scheduler.Job{}
	kind := map[types.UID]*baseline.Class{}
	events := &times{}
	for _, comes := range baseline.Jobs(cohorts, classes, 1) {
		j := job(comes.Name).queue(comes.Queue).priority(comes.Class.Priority).needs(scheduler.Resources{MilliCPU: comes.Class.Units})
		at := noon.Add(comes.After)
		arrivals[at] = append(arrivals[at], scheduler.Job(j))
		kind[j.UID] = comes.Class
		events.add(at)
	}
	s := simulate(scheduler.Snapshot(w))
	queued := map[types.UID]time.Time{}
	longest, together := map[*baseline.Class]time.Duration{}, map[*baseline.Class]time.Duration{}
	mean := func(k *baseline.Class) time.Duration {
		return (together[k] / time.Duration(cohorts*baseline.Queues*k.Count)).Round(time.Millisecond)
	}
	cycles := 0
	for events.Len() > 0 {
		s.Now = events.next()
		for _, j := range arrivals[s.Now] {
			queued[j.UID] = s.Now
			s.submit(j, kind[j.UID].Runs)
		}
		d := s.cycle()
		cycles++
		for _, a := range d.Admitted {
			k, waited := kind[a.UID], s.Now.Sub(queued[a.UID])
			longest[k], together[k] = max(longest[k], waited), together[k]+waited
			events.add(s.ends[a.UID])
		}
	}
	took := s.Now.Sub(noon)
	t.Logf("all have ended after %s, in %d cycles", took, cycles)
	for _, k := range classes {
		t.Logf("%s: admitted after %s on average, %s at most", k.Name, mean(k), longest[k])
	}
	assert.Len(t, s.done, 3000*cohorts)
	assert.Empty(t, s.Pending)
	assert.Less(t, took, 90*time.Second)
	for i := 1; i < len(classes); i++ {
		lower, higher := classes[i-1], classes[i]
		assert.Greater(t, mean(lower), mean(higher), "the higher the priority, the shorter the wait")
	}
}

// times are points in time, each once.
type times struct{ all []time.Time }

func (t *times) Len() int           { return len(t.all) }
func (t *times) Less(i, j int) bool { return t.all[i].Before(t.all[j]) }
func (t *times) Swap(i, j int)      { t.all[i], t.all[j] = t.all[j], t.all[i] }
func (t *times) Push(x any)         { t.all = append(t.all, x.(time.Time)) }
func (t *times) Pop() any {
	last := t.all[len(t.all)-1]
	t.all = t.all[:len(t.all)-1]
	return last
}

func (t *times) add(at time.Time) { heap.Push(t, at) }

func (t *times) next() time.Time {
	first := heap.Pop(t).(time.Time)
	for len(t.all) > 0 && t.all[0].Equal(first) {
		heap.Pop(t)
	}
	return first
}
