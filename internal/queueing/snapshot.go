package queueing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// snapshot is all that a cycle depends on. What it refers to is not changed afterwards.
func (m *model) snapshot(now time.Time) scheduler.Snapshot {
	s := scheduler.Snapshot{
		Now: now, Namespaces: make(map[string]labels.Set, len(m.namespaces)), Nodes: make([]scheduler.Node, 0, len(m.nodes)),
		Running: make([]scheduler.Job, 0, len(m.jobs)-m.waiting), Pending: make([]scheduler.Job, 0, m.waiting),
	}
	covered := map[string]scheduler.Resources{}
	for _, j := range m.jobs {
		if !j.holds() {
			s.Pending = append(s.Pending, j.Job)
			continue
		}
		held := j.held()
		s.Running = append(s.Running, held)
		m.cover(jobName{j.source.Kind, j.Namespace, j.Name}, &held, covered)
	}
	for _, n := range m.nodes {
		if !n.exists {
			continue
		}
		is := n.Node
		is.Requested = plus(n.used, covered[n.Name], -1)
		s.Nodes = append(s.Nodes, is)
	}
	for name, namespace := range m.namespaces {
		s.Namespaces[name] = namespace.Labels
	}
	s.Queues, s.Clusters = slices.Collect(maps.Values(m.queues)), slices.Collect(maps.Values(m.clusters))
	return s
}

// held is a job that holds its place, with what the decisions on it say beyond its status.
func (j *job) held() scheduler.Job {
	held := j.Job
	if j.state == Waiting {
		held.Placement, held.AdmittedAt = j.admitted.Nodes, j.admittedAt
		held.Preemptible = false // it has not even been told that it may start
	}
	held.Stopping = held.Stopping || j.preempted != nil
	return held
}

// cover adds up what the pods of a job take of what is counted for its members on the same nodes: the scheduler must not count
// it twice. A pod more than the job has members on the node, as one that is still ending, counts by itself.
func (m *model) cover(name jobName, held *scheduler.Job, covered map[string]scheduler.Resources) {
	type share struct {
		members int
		needs   scheduler.Resources
	}
	shares := map[*node]share{} // of the job on those of its nodes on which it has pods
	eachMember(held, func(at string, needs scheduler.Resources) {
		if n := m.nodes[at]; n != nil && len(n.jobs[name]) > 0 {
			before := shares[n]
			shares[n] = share{before.members + 1, plus(before.needs, needs, 1)}
		}
	})
	for n, counted := range shares {
		var takes scheduler.Resources
		for _, p := range firstToCount(n.jobs[name], counted.members) {
			takes = plus(takes, p.requests, 1)
		}
		// What a pod requests beyond its member, as for a container that was added, is not counted for the job.
		covered[n.Name] = plus(covered[n.Name], atMost(takes, counted.needs), 1)
	}
}

// firstToCount are so many of the pods, those first that stay.
func firstToCount(pods map[types.UID]*pod, most int) []*pod {
	all := slices.Collect(maps.Values(pods))
	if len(all) <= most {
		return all
	}
	slices.SortFunc(all, func(a, b *pod) int {
		if stays := a.DeletionTimestamp == nil; stays != (b.DeletionTimestamp == nil) {
			if stays {
				return -1
			}
			return 1
		}
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return all[:most]
}
