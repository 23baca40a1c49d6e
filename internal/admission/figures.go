package admission

import (
	"time"

	"github.com/dcnlab/spot-training-operator/internal/scheduler"
)

// QueueFigures are what the jobs of a queue do.
type QueueFigures struct {
	// Depth is the number of jobs that wait, Oldest since when the first of them does; zero when none does.
	Depth  int
	Oldest time.Time
	// Running is the number of jobs that hold a place, Usage what they hold together.
	Running int
	Usage   scheduler.Resources
}

// ClusterFigures are what there is of a cluster, and what runs there.
type ClusterFigures struct {
	// Nodes that match, and how many of them are ready.
	Nodes, Ready int
	// GPUs of the ready nodes, and how many of them nobody has requested.
	GPUs, FreeGPUs int64
	// Jobs that hold a place.
	Jobs int
}

// queueFigures add up what the jobs of a queue do.
func (m *model) queueFigures(name string) (f QueueFigures) {
	for _, j := range m.inQueue[name] {
		if !j.holds() {
			f.Depth++
			if f.Oldest.IsZero() || j.QueuedAt.Before(f.Oldest) {
				f.Oldest = j.QueuedAt
			}
			continue
		}
		f.Running++
		for _, group := range j.Groups {
			f.Usage = plus(f.Usage, group.Requests, int64(group.Count))
		}
	}
	return f
}

// clusterFigures look at all nodes; members that have no pods yet have their GPUs.
func (m *model) clusterFigures(selector map[string]string, name string) ClusterFigures {
	var f ClusterFigures
	reserved := map[string]int64{} // by node, of members beyond the pods that there are
	for _, j := range m.jobs {
		if !j.holds() {
			continue
		}
		if j.Cluster == name {
			f.Jobs++
		}
		held := j.held()
		m.reserveGPUs(jobName{j.source.Kind, j.Namespace, j.Name}, &held, reserved)
	}
	for _, n := range m.nodes {
		if !n.exists || !belongs(n.Labels, selector) {
			continue
		}
		f.Nodes++
		if !n.Ready {
			continue
		}
		f.Ready++
		f.GPUs += n.Allocatable.GPUs
		f.FreeGPUs += max(0, n.Allocatable.GPUs-n.used.GPUs-reserved[n.Name])
	}
	return f
}

func (m *model) reserveGPUs(name jobName, held *scheduler.Job, reserved map[string]int64) {
	covered := map[string]scheduler.Resources{}
	m.cover(name, held, covered)
	at := 0
	for _, group := range held.Groups {
		for range group.Count {
			if at < len(held.Placement) {
				reserved[held.Placement[at]] += group.Requests.GPUs
				at++
			}
		}
	}
	for of, sum := range covered {
		reserved[of] -= sum.GPUs
	}
}
