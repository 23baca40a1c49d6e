package queueing

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
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
	// GPUs of the ready nodes, and how many of them are not requested.
	GPUs, FreeGPUs int64
	// Jobs that hold a place.
	Jobs int
}

// NodeUse is what there is on a node.
type NodeUse struct {
	// Taken is what the pods on it request, and what jobs hold there that have no pods yet.
	Taken capacity.Resources
	// Jobs says whether any of that is an AIJob's or a TrainingJob's.
	Jobs bool
}

// nodeUses say what there is on some nodes.
func (m *model) nodeUses(names []string) map[string]NodeUse {
	taken, covered, uses := map[string]scheduler.Resources{}, map[string]scheduler.Resources{}, map[string]NodeUse{}
	byJobs := map[string]bool{}
	for _, name := range names {
		taken[name] = scheduler.Resources{}
		if n := m.nodes[name]; n != nil {
			taken[name], byJobs[name] = n.used, len(n.jobs) > 0
		}
	}
	for _, j := range m.jobs {
		if !j.holds() {
			continue
		}
		held, there := j.held(), false
		eachMember(&held, func(node string, needs scheduler.Resources) {
			if sum, asked := taken[node]; asked {
				taken[node], byJobs[node], there = plus(sum, needs, 1), true, true
			}
		})
		if there {
			m.cover(jobName{j.source.Kind, j.Namespace, j.Name}, &held, covered)
		}
	}
	for _, name := range names {
		sum := plus(taken[name], covered[name], -1)
		uses[name] = NodeUse{Taken: capacity.Resources{MilliCPU: sum.MilliCPU, Memory: sum.Memory, GPUs: sum.GPUs}, Jobs: byJobs[name]}
	}
	return uses
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
	for _, j := range m.jobs {
		if j.holds() && j.Cluster == name {
			f.Jobs++
		}
	}
	members := labels.SelectorFromSet(selector)
	var ready []string
	for _, n := range m.nodes {
		if !n.exists || !members.Matches(labels.Set(n.Labels)) {
			continue
		}
		f.Nodes++
		if n.Ready {
			f.GPUs += n.Allocatable.GPUs
			ready = append(ready, n.Name)
		}
	}
	f.Ready = len(ready)
	for name, use := range m.nodeUses(ready) {
		f.FreeGPUs += max(0, m.nodes[name].Allocatable.GPUs-use.Taken.GPUs)
	}
	return f
}

// eachMember tells the node and the needs of each member that a job has placed.
func eachMember(held *scheduler.Job, tell func(node string, needs scheduler.Resources)) {
	at := 0
	for i := range held.Groups {
		for range held.Groups[i].Count {
			if at < len(held.Placement) {
				tell(held.Placement[at], held.Groups[i].Requests)
				at++
			}
		}
	}
}
