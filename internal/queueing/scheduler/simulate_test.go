package scheduler_test

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// simulation runs cycles on a clock of its own: jobs come, run for their time, and end.
type simulation struct {
	scheduler.Snapshot
	// runtime of each job, and how long one takes to stop.
	runtime map[types.UID]time.Duration
	stops   time.Duration
	ends    map[types.UID]time.Time
	// admitted is when each job last was, done which have ended.
	admitted map[types.UID]time.Time
	done     map[types.UID]time.Time
	lost     int
}

func simulate(s scheduler.Snapshot) *simulation {
	return &simulation{Snapshot: s, runtime: map[types.UID]time.Duration{}, stops: time.Second, ends: map[types.UID]time.Time{},
		admitted: map[types.UID]time.Time{}, done: map[types.UID]time.Time{}}
}

// submit a job that runs for some time.
func (s *simulation) submit(j scheduler.Job, runs time.Duration) {
	j.QueuedAt, j.AdmittedAt, j.Placement, j.Stopping = s.Now, time.Time{}, nil, false
	s.runtime[j.UID] = runs
	s.Pending = append(s.Pending, j)
}

// cycle ends what has run its time, and lets the scheduler decide.
func (s *simulation) cycle() scheduler.Decisions {
	s.Running = slices.DeleteFunc(s.Running, func(j scheduler.Job) bool {
		if s.ends[j.UID].After(s.Now) {
			return false
		}
		if j.Stopping {
			s.submit(j, s.runtime[j.UID])
		} else {
			s.done[j.UID] = s.Now
		}
		return true
	})
	d := scheduler.Schedule(s.Snapshot)
	placed := map[types.UID][]string{}
	for _, a := range d.Admitted {
		placed[a.UID] = a.Nodes
	}
	s.Pending = slices.DeleteFunc(s.Pending, func(j scheduler.Job) bool {
		nodes, ok := placed[j.UID]
		if ok {
			j.Placement, j.AdmittedAt = nodes, s.Now
			s.Running = append(s.Running, j)
			s.admitted[j.UID] = s.Now
			s.ends[j.UID] = s.Now.Add(s.runtime[j.UID])
		}
		return ok
	})
	for _, p := range d.Preempted {
		s.lost++
		at := slices.IndexFunc(s.Running, func(j scheduler.Job) bool { return j.UID == p.UID })
		s.Running[at].Stopping = true
		s.ends[p.UID] = s.Now.Add(s.stops)
	}
	return d
}

// next is the time at which the next job ends or has stopped.
func (s *simulation) next() (time.Time, bool) {
	var first time.Time
	for _, j := range s.Running {
		if at := s.ends[j.UID]; first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first, !first.IsZero()
}
