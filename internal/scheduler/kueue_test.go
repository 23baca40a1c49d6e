package scheduler_test

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/scheduler"
)

// class of jobs of a queue: so many, one every interval, each running for a while.
type class struct {
	name              string
	count             int
	request           int64
	runs, every       time.Duration
	priority          int32
	longest, together time.Duration
}

// TestBaselineOfQueues runs the scenario by which Kueue measures its scheduler for one of the 5 cohorts, which have nothing to do
// with one another: 3,000 jobs in 6 queues. What the queues may hold at all allows no less than 66 seconds.
func TestBaselineOfQueues(t *testing.T) { baseline(t, 1) }

// BenchmarkBaselineOfQueues runs all of it: 15,000 jobs in 30 queues.
func BenchmarkBaselineOfQueues(b *testing.B) {
	for b.Loop() {
		baseline(b, 5)
	}
}

func baseline(t testing.TB, cohorts int) {
	classes := []*class{
		{name: "small", count: 350, request: 1, runs: 200 * time.Millisecond, every: 100 * time.Millisecond, priority: 50},
		{name: "medium", count: 100, request: 5, runs: 500 * time.Millisecond, every: 500 * time.Millisecond, priority: 100},
		{name: "large", count: 50, request: 20, runs: time.Second, every: 1200 * time.Millisecond, priority: 200},
	}
	w := world{Now: noon}
	// Room is not what is measured: one node has it all.
	w.Nodes = []scheduler.Node{scheduler.Node(node("n", 0).room(scheduler.Resources{MilliCPU: 1e9, Pods: 1e6}))}
	for c := range cohorts {
		for q := range 6 {
			nominal, borrowing := int64(20), int64(100)
			w = w.queues(queue(fmt.Sprintf("c%d-q%d", c, q)).cohort(fmt.Sprintf("c%d", c)).quota(scheduler.Quota{MilliCPU: &nominal}))
			w.Queues[len(w.Queues)-1].Borrowing = &scheduler.Quota{MilliCPU: &borrowing}
		}
	}
	arrivals := map[time.Time][]scheduler.Job{}
	kind := map[types.UID]*class{}
	events := &times{}
	for _, q := range w.Queues {
		for _, k := range classes {
			for i := range k.count {
				j := job(fmt.Sprintf("%s-%s-%d", q.Name, k.name, i)).queue(q.Name).priority(k.priority).needs(scheduler.Resources{MilliCPU: k.request})
				at := noon.Add(time.Duration(i) * k.every)
				arrivals[at] = append(arrivals[at], scheduler.Job(j))
				kind[j.UID] = k
				events.add(at)
			}
		}
	}
	s := simulate(scheduler.Snapshot(w))
	queued := map[types.UID]time.Time{}
	cycles := 0
	for events.Len() > 0 {
		s.Now = events.next()
		for _, j := range arrivals[s.Now] {
			queued[j.UID] = s.Now
			s.submit(j, kind[j.UID].runs)
		}
		d := s.cycle()
		cycles++
		for _, a := range d.Admitted {
			k, waited := kind[a.UID], s.Now.Sub(queued[a.UID])
			k.longest, k.together = max(k.longest, waited), k.together+waited
			events.add(s.ends[a.UID])
		}
	}
	took := s.Now.Sub(noon)
	t.Logf("all have ended after %s, in %d cycles", took, cycles)
	for _, k := range classes {
		t.Logf("%s: admitted after %s on average, %s at most", k.name, (k.together / time.Duration(6*cohorts*k.count)).Round(time.Millisecond), k.longest)
	}
	assert.Len(t, s.done, 3000*cohorts)
	assert.Empty(t, s.Pending)
	assert.Less(t, took, 90*time.Second)
	for i := 1; i < len(classes); i++ {
		lower, higher := classes[i-1], classes[i]
		assert.Greater(t, lower.together/time.Duration(lower.count), higher.together/time.Duration(higher.count), "the higher the priority, the shorter the wait")
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
