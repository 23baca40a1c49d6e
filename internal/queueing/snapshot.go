package queueing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// snapshot is all that a cycle depends on. What it refers to is not changed afterwards.
func (m *model) snapshot(now time.Time) scheduler.Snapshot {
	s := scheduler.Snapshot{
		Now: now, Nodes: make([]scheduler.Node, 0, len(m.nodes)),
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
	for _, counted := range m.sharesOf(name, held) {
		var takes scheduler.Resources
		for _, p := range firstToCount(counted.on.jobs[name], counted.members) {
			takes = plus(takes, p.requests, 1)
		}
		// What a pod requests beyond its member, as for a container that was added, is not counted for the job.
		covered[counted.on.Name] = plus(covered[counted.on.Name], atMost(takes, counted.needs), 1)
	}
}

// share of a job on a node.
type share struct {
	on      *node
	members int
	needs   scheduler.Resources
}

// fewShares are searched one by one: that is faster than a map, and most jobs have few.
const fewShares = 16

// sharesOf a job are those nodes of its placement on which it has pods.
func (m *model) sharesOf(job jobName, held *scheduler.Job) []share {
	var shares []share
	var known map[*node]int
	if len(held.Placement) > fewShares {
		known = make(map[*node]int, len(held.Placement))
	}
	find := func(n *node) int {
		if known == nil {
			return slices.IndexFunc(shares, func(s share) bool { return s.on == n })
		}
		if i, ok := known[n]; ok {
			return i
		}
		return -1
	}
	eachMember(held, func(name string, needs scheduler.Resources) {
		n := m.nodes[name]
		if n == nil || len(n.jobs[job]) == 0 {
			return
		}
		i := find(n)
		if i < 0 {
			i = len(shares)
			shares = append(shares, share{on: n})
			if known != nil {
				known[n] = i
			}
		}
		shares[i].members++
		shares[i].needs = plus(shares[i].needs, needs, 1)
	})
	return shares
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
