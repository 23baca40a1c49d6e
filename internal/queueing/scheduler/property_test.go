package scheduler_test

import (
	"math/rand"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestNeverOverAnyLimitNeverAPartOfAGang(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		if err := check(s, scheduler.Schedule(s)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTheSameInAnyOrderGivesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		first := scheduler.Schedule(s)
		random := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		shuffled := scheduler.Snapshot{Now: s.Now, Nodes: shuffle(random, s.Nodes), Queues: shuffle(random, s.Queues),
			Clusters: shuffle(random, s.Clusters), Running: shuffle(random, s.Running), Pending: shuffle(random, s.Pending)}
		assertEqual(t, first, scheduler.Schedule(shuffled))
	})
}

func shuffle[T any](random *rand.Rand, all []T) []T {
	all = slices.Clone(all)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func assertEqual(t *rapid.T, want, have scheduler.Decisions) {
	if !slices.EqualFunc(want.Admitted, have.Admitted, func(a, b scheduler.Admission) bool {
		return a.UID == b.UID && a.Cluster == b.Cluster && slices.Equal(a.Nodes, b.Nodes)
	}) || !slices.Equal(want.Preempted, have.Preempted) || !slices.Equal(want.Waiting, have.Waiting) {
		t.Fatalf("was\n%+v\nis\n%+v", want, have)
	}
}

// without the jobs that are being stopped and those that lost their place.
func without(s scheduler.Snapshot, gone func(types.UID) bool) scheduler.Snapshot {
	s.Running = slices.DeleteFunc(slices.Clone(s.Running), func(j scheduler.Job) bool { return j.Stopping || gone(j.UID) })
	return s
}

func TestVictimsAreOfLowerPriorityAndNotInVain(t *testing.T) {
	happened := 0
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		d := scheduler.Schedule(s)
		jobs := map[types.UID]scheduler.Job{}
		for _, j := range append(slices.Clone(s.Running), s.Pending...) {
			jobs[j.UID] = j
		}
		victims := map[types.UID]bool{}
		next := s
		next.Pending = slices.Clone(s.Pending)
		for _, p := range d.Preempted {
			v, f := jobs[p.UID], jobs[p.For]
			if v.Priority >= f.Priority || !v.Preemptible || v.Stopping || victims[p.UID] {
				t.Fatalf("%+v loses its place for %+v", v, f)
			}
			victims[p.UID] = true
			v.QueuedAt, v.AdmittedAt, v.Placement = s.Now.Add(time.Second), time.Time{}, nil
			next.Pending = append(next.Pending, v)
		}
		next = without(next, func(uid types.UID) bool { return victims[uid] })
		next.Now = s.Now.Add(time.Second)
		for _, a := range d.Admitted {
			j := jobs[a.UID]
			j.Placement, j.AdmittedAt = a.Nodes, s.Now
			next.Running = append(next.Running, j)
			next.Pending = slices.DeleteFunc(next.Pending, func(p scheduler.Job) bool { return p.UID == a.UID })
		}
		then := outcome(scheduler.Schedule(next)).admitted()
		for _, p := range d.Preempted {
			happened++
			if slices.Contains(then, string(p.UID)) && !slices.Contains(then, string(p.For)) {
				t.Fatalf("%s has its place back before %s had it%s\n%+v\nthen %v", p.UID, p.For, describe(s), d, then)
			}
			alone := next
			alone.Pending = []scheduler.Job{jobs[p.For]}
			for _, other := range d.Preempted {
				if other.For != p.For {
					// The room of others' victims is not this job's.
					return
				}
			}
			if len(scheduler.Schedule(alone).Admitted) == 0 {
				t.Fatalf("%s was preempted for nothing: %s does not fit then%s\n%+v", p.UID, p.For, describe(s), d)
			}
		}
	})
	t.Logf("%d times", happened)
	if happened == 0 {
		t.Fatal("no job lost its place in any of the worlds")
	}
}

func TestNoVictimTooMany(t *testing.T) {
	happened := 0
	rapid.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		if len(s.Pending) == 0 || len(s.Queues) == 0 {
			return
		}
		s.Pending = s.Pending[:1]
		s.Pending[0].Priority, s.Pending[0].Queue = 40, s.Queues[0].Name
		s.Queues[0].Spec.PreemptionPolicy = aiplatformv1alpha1.PreemptLowerPriority
		// Packing groups of different shapes is not exact.
		s.Pending[0].Groups = s.Pending[0].Groups[:min(len(s.Pending[0].Groups), 1)]
		d := scheduler.Schedule(s)
		victims := map[types.UID]bool{}
		for _, p := range d.Preempted {
			victims[p.UID] = true
		}
		if len(victims) == 0 {
			return
		}
		happened++
		if all := without(s, func(uid types.UID) bool { return victims[uid] }); len(scheduler.Schedule(all).Admitted) == 0 {
			t.Fatalf("%s does not fit without %v", s.Pending[0].UID, victims)
		}
		for spared := range victims {
			others := without(s, func(uid types.UID) bool { return victims[uid] && uid != spared })
			if len(scheduler.Schedule(others).Admitted) > 0 {
				t.Fatalf("%s could have kept its place", spared)
			}
		}
	})
	t.Logf("%d times", happened)
	if happened == 0 {
		t.Fatal("no job lost its place in any of the worlds")
	}
}
