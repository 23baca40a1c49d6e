package queueing

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// model is what the scheduler must know of the cluster, kept up to date event by event. It knows no server and no lock.
type model struct {
	nodes    map[string]*node
	pods     map[types.UID]*pod
	jobs     map[types.UID]*job
	names    map[jobName]types.UID
	inQueue  map[string]map[types.UID]*job
	queues   map[string]*aiplatformv1alpha1.AIJobQueue
	clusters map[string]*aiplatformv1alpha1.ComputeCluster
	// namespaces have the labels by which queues select.
	namespaces map[string]*corev1.Namespace
	waiting    int // jobs that wait and are not decided upon
}

func newModel() *model {
	return &model{
		nodes: map[string]*node{}, pods: map[types.UID]*pod{}, jobs: map[types.UID]*job{}, names: map[jobName]types.UID{},
		inQueue: map[string]map[types.UID]*job{},
		queues:  map[string]*aiplatformv1alpha1.AIJobQueue{}, clusters: map[string]*aiplatformv1alpha1.ComputeCluster{},
		namespaces: map[string]*corev1.Namespace{},
	}
}

// node that exists, or whose pods alone were seen so far.
type node struct {
	scheduler.Node

	exists bool
	used   scheduler.Resources            // by all pods on it
	jobs   map[jobName]map[types.UID]*pod // those pods that belong to jobs
}

// job that waits or holds something.
type job struct {
	scheduler.Job

	source *Source
	state  State
	// resourceVersion of the object that was last looked at, and how often what counts of it was another.
	resourceVersion string
	changes         int
	// ask says that a controller asked about a newer version than was looked at, and is to be told when it is.
	ask bool

	// admitted is a decision that the status does not show yet. preempted holds until the job releases its resources.
	admitted   *scheduler.Admission
	admittedAt time.Time
	preempted  *PreemptedBy
	wait       *scheduler.Wait
	// told is when the wait was last told, untold that it has become another since.
	told   time.Time
	untold bool
}

// holds says whether the job has its place, be it by a decision alone.
func (j *job) holds() bool { return j.state == Holding || j.admitted != nil }

// needed says whether there is something to decide, or to tell.
func (m *model) needed() bool { return len(m.jobs) > 0 || len(m.clusters) > 0 || len(m.queues) > 0 }

// setNode returns whether anything changed that counts.
func (m *model) setNode(is scheduler.Node) bool {
	n := m.node(is.Name)
	if n.exists && reflect.DeepEqual(n.Node, is) {
		return false
	}
	n.Node, n.exists = is, true
	return true
}

func (m *model) dropNode(name string) {
	if n := m.nodes[name]; n != nil {
		n.Node, n.exists = scheduler.Node{Name: name}, false
		m.tidy(n)
	}
}

func (m *model) node(name string) *node {
	n := m.nodes[name]
	if n == nil {
		n = &node{Node: scheduler.Node{Name: name}, jobs: map[jobName]map[types.UID]*pod{}}
		m.nodes[name] = n
	}
	return n
}

func (m *model) tidy(n *node) {
	if !n.exists && n.used.Pods == 0 {
		delete(m.nodes, n.Name)
	}
}

// setPod returns whether it takes other room than before.
func (m *model) setPod(is *pod) bool {
	was := m.pods[is.UID]
	if was != nil && was.node == is.node && was.job == is.job && reflect.DeepEqual(was.requests, is.requests) &&
		(was.DeletionTimestamp == nil) == (is.DeletionTimestamp == nil) {
		return false
	}
	if was != nil {
		m.dropPod(was.UID)
	}
	m.pods[is.UID] = is
	n := m.node(is.node)
	n.used = plus(n.used, is.requests, 1)
	if is.job.name != "" {
		if n.jobs[is.job] == nil {
			n.jobs[is.job] = map[types.UID]*pod{}
		}
		n.jobs[is.job][is.UID] = is
	}
	return true
}

func (m *model) dropPod(uid types.UID) {
	p := m.pods[uid]
	if p == nil {
		return
	}
	delete(m.pods, uid)
	n := m.node(p.node)
	n.used = plus(n.used, p.requests, -1)
	if of := n.jobs[p.job]; of != nil {
		delete(of, uid)
		if len(of) == 0 {
			delete(n.jobs, p.job)
		}
	}
	m.tidy(n)
}

// setJob takes in what an object says of its job. It returns whether anything changed that counts, and the job.
func (m *model) setJob(source *Source, is scheduler.Job, state State, resourceVersion string) (changed bool, j *job) {
	name := jobName{source.Kind, is.Namespace, is.Name}
	if old, ok := m.names[name]; ok && old != is.UID { // deleted and created again
		m.dropJob(old)
	}
	j = m.jobs[is.UID]
	if state == Uninvolved {
		if j == nil {
			return false, nil
		}
		m.dropJob(is.UID)
		return true, j
	}
	if j == nil {
		j = &job{source: source, Job: is, state: state, resourceVersion: resourceVersion}
		m.jobs[is.UID], m.names[name] = j, is.UID
		m.enqueue(j)
		m.count(j, 1)
		return true, j
	}
	j.resourceVersion = resourceVersion
	if j.state == state && reflect.DeepEqual(j.Job, is) {
		return false, j
	}
	m.count(j, -1)
	switch {
	case state == Holding && j.state == Waiting, state == Waiting && j.state == Holding:
		j.admitted, j.preempted, j.wait = nil, nil, nil
	case state == Waiting && !sameDemand(&j.Job, &is):
		j.admitted = nil // what was decided was decided for something else
	case j.admitted != nil && j.admitted.Generation != is.Generation: // the edit asks for the same place
		holds := *j.admitted
		holds.Generation = is.Generation
		j.admitted = &holds
	}
	if is.Stopping {
		j.preempted = nil
	}
	if j.Queue != is.Queue {
		m.dequeue(j)
	}
	j.Job, j.state = is, state
	j.changes++
	m.enqueue(j)
	m.count(j, 1)
	return true, j
}

// sameDemand says whether a decision on one version of a job holds for another.
func sameDemand(a, b *scheduler.Job) bool {
	return a.Queue == b.Queue && a.Priority == b.Priority && a.Cluster == b.Cluster && a.Topology == b.Topology &&
		reflect.DeepEqual(a.Groups, b.Groups)
}

func (m *model) dropJob(uid types.UID) {
	j := m.jobs[uid]
	if j == nil {
		return
	}
	m.count(j, -1)
	m.dequeue(j)
	delete(m.jobs, uid)
	if name := (jobName{j.source.Kind, j.Namespace, j.Name}); m.names[name] == uid {
		delete(m.names, name)
	}
}

func (m *model) enqueue(j *job) {
	if j.Queue == "" {
		return
	}
	if m.inQueue[j.Queue] == nil {
		m.inQueue[j.Queue] = map[types.UID]*job{}
	}
	m.inQueue[j.Queue][j.UID] = j
}

func (m *model) dequeue(j *job) {
	if delete(m.inQueue[j.Queue], j.UID); len(m.inQueue[j.Queue]) == 0 {
		delete(m.inQueue, j.Queue)
	}
}

func (m *model) count(j *job, by int) {
	if !j.holds() {
		m.waiting += by
	}
}
