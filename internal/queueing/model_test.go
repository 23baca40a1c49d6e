package queueing

import (
	"cmp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

var (
	noon   = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	aiJobs = &Source{Kind: "AIJob"}
	one    = scheduler.Resources{MilliCPU: 1000, GPUs: 1, Pods: 1}
)

// gpus of so many pods.
func gpus(n int64) scheduler.Resources {
	return scheduler.Resources{MilliCPU: 1000 * n, GPUs: n, Pods: n}
}

func anyNode(name string, n int64) scheduler.Node {
	return scheduler.Node{Name: name, Ready: true, Allocatable: gpus(n)}
}

func gang(name string, members int, on ...string) scheduler.Job {
	return scheduler.Job{
		UID: types.UID(name), Kind: "AIJob", Namespace: "team", Name: name, Priority: 50, Preemptible: true, QueuedAt: noon,
		Groups: []scheduler.Group{{Count: members, Requests: one}}, Placement: on,
	}
}

// on is a pod on a node, of the job if one is named.
func on(node, name, job string) *pod {
	p := &pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", UID: types.UID(name)}, node: node, requests: one}
	if job != "" {
		p.job = jobName{"AIJob", "team", job}
	}
	return p
}

func ending(p *pod) *pod {
	p.DeletionTimestamp = &metav1.Time{Time: noon}
	return p
}

// requested is what the snapshot says of a node beside the jobs that run.
func requested(t *testing.T, m *model, name string) scheduler.Resources {
	t.Helper()
	for _, n := range m.snapshot(noon).Nodes {
		if n.Name == name {
			return n.Requested
		}
	}
	require.FailNow(t, "no node", name)
	return scheduler.Resources{}
}

func TestPodsAreCountedOnce(t *testing.T) {
	tests := map[string]struct {
		job  *scheduler.Job
		pods []*pod
		want map[string]int64 // pods that are counted by themselves, by node
	}{
		"foreign pods take room": {pods: []*pod{on("a", "p1", ""), on("a", "p2", ""), on("b", "p3", "")}, want: map[string]int64{"a": 2, "b": 1}},
		"pods of a job that holds its place are counted through the job": {
			job: new(gang("j", 2, "a", "b")), pods: []*pod{on("a", "p1", "j"), on("b", "p2", "j"), on("b", "x", "")},
			want: map[string]int64{"b": 1},
		},
		"a place whose pod is not there yet is not given to another": {job: new(gang("j", 2, "a", "b")), pods: []*pod{on("a", "p1", "j")}},
		"a pod that is on another node than its place counts there": {
			job: new(gang("j", 2, "a", "a")), pods: []*pod{on("a", "p1", "j"), on("b", "p2", "j")}, want: map[string]int64{"b": 1},
		},
		"a pod of an earlier try that still ends counts beside the place": {
			job: new(gang("j", 1, "a")), pods: []*pod{ending(on("a", "old", "j")), on("a", "new", "j")}, want: map[string]int64{"a": 1},
		},
		"pods of a job that holds nothing count": {pods: []*pod{ending(on("a", "p1", "gone"))}, want: map[string]int64{"a": 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			m.setNode(anyNode("a", 4))
			m.setNode(anyNode("b", 4))
			for _, p := range test.pods {
				assert.True(t, m.setPod(p))
				assert.False(t, m.setPod(p), "the same again changes nothing")
			}
			if test.job != nil {
				m.setJob(aiJobs, *test.job, Holding, "1")
			}
			for _, name := range []string{"a", "b"} {
				assert.Equal(t, gpus(test.want[name]), requested(t, m, name), name)
			}
			for _, p := range test.pods {
				m.dropPod(p.UID)
			}
			assert.Equal(t, scheduler.Resources{}, requested(t, m, "a"), "what went takes nothing")
			assert.Empty(t, m.pods)
		})
	}
}

func TestWhatAPodRequestsBeyondItsMemberCountsByItself(t *testing.T) {
	m := newModel()
	m.setNode(anyNode("a", 4))
	m.setJob(aiJobs, gang("j", 1, "a"), Holding, "1")
	p := on("a", "p", "j")
	p.requests = scheduler.Resources{MilliCPU: 1500, GPUs: 1, Pods: 1, Extended: map[corev1.ResourceName]int64{"x.com/nic": 1}}
	m.setPod(p)
	assert.Equal(t, scheduler.Resources{MilliCPU: 500, Extended: map[corev1.ResourceName]int64{"x.com/nic": 1}}, requested(t, m, "a"))
}

// A large gang, whose members alternate between nodes, is counted like a small one.
func TestPodsOfALargeGangAreCountedOnce(t *testing.T) {
	m := newModel()
	m.setNode(anyNode("a", 40))
	m.setNode(anyNode("b", 40))
	var nodes []string
	for i := range 40 {
		node := []string{"a", "b"}[i%2]
		nodes = append(nodes, node)
		m.setPod(on(node, "p"+strconv.Itoa(i), "j"))
	}
	m.setPod(ending(on("a", "old", "j")))
	m.setJob(aiJobs, gang("j", 40, nodes...), Holding, "1")
	assert.Equal(t, gpus(1), requested(t, m, "a"))
	assert.Equal(t, gpus(0), requested(t, m, "b"))
}

func TestAPodMaySeeItsNodeBeforeWeDo(t *testing.T) {
	m := newModel()
	m.setPod(on("a", "p", ""))
	assert.Empty(t, m.snapshot(noon).Nodes, "nothing is placed on an unknown node")
	m.setNode(anyNode("a", 4))
	assert.Equal(t, gpus(1), requested(t, m, "a"))
	m.dropNode("a")
	assert.Empty(t, m.snapshot(noon).Nodes)
	m.setNode(anyNode("a", 4))
	assert.Equal(t, gpus(1), requested(t, m, "a"), "a node that came back still has its pods")
	m.dropNode("a")
	m.dropPod("p")
	assert.Empty(t, m.nodes)
}

// decide takes decisions on the model as it is.
func decide(m *model, d scheduler.Decisions) outcome { return m.take(d, m.seen(), noon) }

func names(jobs []scheduler.Job) []string {
	var all []string
	for i := range jobs {
		all = append(all, jobs[i].Name)
	}
	slices.Sort(all)
	return all
}

func TestADecisionIsOnTheSpecAsItIs(t *testing.T) {
	m := newModel()
	job := gang("j", 2)
	job.Generation = 1
	m.setJob(aiJobs, job, Waiting, "1")
	decide(m, scheduler.Decisions{Admitted: []scheduler.Admission{{UID: "j", Generation: 1, Nodes: []string{"a", "b"}}}})

	job.Generation = 2
	m.setJob(aiJobs, job, Waiting, "2")
	require.NotNil(t, m.jobs["j"].admitted, "an edit that asks for the same place")
	assert.EqualValues(t, 2, m.jobs["j"].admitted.Generation)

	job = gang("j", 3)
	job.Generation = 3
	m.setJob(aiJobs, job, Waiting, "3")
	assert.Nil(t, m.jobs["j"].admitted, "an edit that asks for more")
}

func TestADecisionHoldsUntilTheStatusShowsIt(t *testing.T) {
	m := newModel()
	m.setJob(aiJobs, gang("j", 2), Waiting, "1")
	admission := scheduler.Admission{UID: "j", Nodes: []string{"a", "b"}}

	o := decide(m, scheduler.Decisions{Admitted: []scheduler.Admission{admission}})

	assert.Equal(t, 1, o.admitted)
	require.Len(t, o.tell, 1)
	assert.Equal(t, Decision{Admitted: &admission}, m.jobs["j"].decision())
	s := m.snapshot(noon)
	assert.Empty(t, s.Pending)
	require.Len(t, s.Running, 1)
	assert.Equal(t, []string{"a", "b"}, s.Running[0].Placement)
	assert.False(t, s.Running[0].Preemptible, "a job that has not even started is no victim")

	m.setJob(aiJobs, gang("j", 2), Waiting, "2")
	assert.Equal(t, 0, m.waiting, "another write of its status, as of its place in the queue, changes nothing")

	m.setJob(aiJobs, gang("j", 2, "a", "b"), Holding, "3")
	assert.Equal(t, Decision{}, m.jobs["j"].decision(), "it is done")
	assert.Len(t, m.snapshot(noon).Running, 1)

	m.setJob(aiJobs, gang("j", 2), Waiting, "4")
	assert.Equal(t, []string{"j"}, names(m.snapshot(noon).Pending), "it was evicted and is not admitted by an old decision")
	assert.False(t, m.jobs["j"].known())
}

func TestADecisionGoesWith(t *testing.T) {
	larger := gang("j", 3)
	moved := gang("j", 2)
	moved.Queue = "other"
	tests := map[string]struct {
		change  func(m *model)
		pending []string
	}{
		"a job that asks for something else": {func(m *model) { m.setJob(aiJobs, larger, Waiting, "2") }, []string{"j"}},
		"a job that goes to another queue":   {func(m *model) { m.setJob(aiJobs, moved, Waiting, "2") }, []string{"j"}},
		"a job that is cancelled":            {func(m *model) { m.setJob(aiJobs, gang("j", 2), Uninvolved, "2") }, nil},
		"a job that is deleted":              {func(m *model) { m.dropJob("j") }, nil},
		"a job that was created again under its name": {func(m *model) {
			again := gang("j", 2)
			again.UID = "j2"
			m.setJob(aiJobs, again, Waiting, "2")
		}, []string{"j"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			m.setJob(aiJobs, gang("j", 2), Waiting, "1")
			decide(m, scheduler.Decisions{Admitted: []scheduler.Admission{{UID: "j", Nodes: []string{"a", "b"}}}})
			test.change(m)
			s := m.snapshot(noon)
			assert.Empty(t, s.Running)
			assert.Equal(t, test.pending, names(s.Pending))
			assert.Equal(t, len(test.pending), m.waiting)
		})
	}
}

func TestADecisionOnAJobThatChangedMeanwhileIsDropped(t *testing.T) {
	m := newModel()
	m.setJob(aiJobs, gang("j", 2), Waiting, "1")
	m.setJob(aiJobs, gang("k", 1), Waiting, "1")
	seen := m.seen()
	m.setJob(aiJobs, gang("j", 3), Waiting, "2")
	m.dropJob("k")

	o := m.take(scheduler.Decisions{Admitted: []scheduler.Admission{{UID: "j", Nodes: []string{"a", "b"}}, {UID: "k", Nodes: []string{"a"}}}}, seen, noon)

	assert.True(t, o.stale, "another cycle is needed")
	assert.Zero(t, o.admitted)
	assert.Equal(t, []string{"j"}, names(m.snapshot(noon).Pending))
}

func TestAPreemptionHoldsUntilThePlaceIsGivenBack(t *testing.T) {
	m := newModel()
	m.setJob(aiJobs, gang("victim", 1, "a"), Holding, "1")
	winner := gang("winner", 1)
	winner.Priority = 90
	m.setJob(aiJobs, winner, Waiting, "1")
	preempted := scheduler.Decisions{Preempted: []scheduler.Preemption{{UID: "victim", For: "winner"}}}

	first, second := decide(m, preempted), decide(m, preempted)

	assert.Equal(t, 1, first.preempted)
	assert.Zero(t, second.preempted, "it is told once")
	assert.Equal(t, Decision{Preempted: &PreemptedBy{"AIJob", "team", "winner", 90}}, m.jobs["victim"].decision())
	assert.True(t, m.snapshot(noon).Running[0].Stopping)

	stopping := gang("victim", 1, "a")
	stopping.Stopping = true
	m.setJob(aiJobs, stopping, Holding, "2")
	assert.True(t, m.snapshot(noon).Running[0].Stopping)

	m.setJob(aiJobs, gang("victim", 1), Waiting, "3")
	assert.Equal(t, []string{"victim", "winner"}, names(m.snapshot(noon).Pending))
}

func TestWaitsAreToldSparingly(t *testing.T) {
	m := newModel()
	m.setJob(aiJobs, gang("j", 1), Waiting, "1")
	told := func(after time.Duration, position int, reason string) bool {
		o := m.take(scheduler.Decisions{Waiting: []scheduler.Wait{{UID: "j", Position: position, Reason: reason}}}, m.seen(), noon.Add(after))
		assert.Equal(t, position, m.jobs["j"].decision().Wait.Position, "a question gets the newest")
		return len(o.tell) > 0
	}
	assert.True(t, told(0, 5, "QuotaReached"), "the first")
	assert.False(t, told(time.Second, 5, "QuotaReached"), "the same")
	assert.False(t, told(2*time.Second, 4, "QuotaReached"), "another place, too soon")
	assert.True(t, told(3*time.Second, 4, "InsufficientCapacity"), "another reason")
	assert.False(t, told(4*time.Second, 3, "InsufficientCapacity"))
	assert.True(t, told(9*time.Second, 3, "InsufficientCapacity"), "what was not told then is told when its time has come")
	assert.False(t, told(time.Minute, 3, "InsufficientCapacity"))
}

func TestFigures(t *testing.T) {
	m := newModel()
	m.setNode(scheduler.Node{Name: "a", Ready: true, Labels: map[string]string{"gpu": "a100"}, Allocatable: gpus(4)})
	m.setNode(scheduler.Node{Name: "b", Ready: false, Labels: map[string]string{"gpu": "a100"}, Allocatable: gpus(4)})
	m.setNode(scheduler.Node{Name: "c", Ready: true, Allocatable: gpus(4)})
	in := func(queue string, queuedAfter time.Duration, j scheduler.Job) scheduler.Job {
		j.Queue, j.Cluster, j.QueuedAt = queue, "a100s", noon.Add(queuedAfter)
		return j
	}
	m.setJob(aiJobs, in("q", 0, gang("runs", 2, "a", "a")), Holding, "1")
	m.setPod(on("a", "p1", "runs")) // the second is not bound yet
	m.setPod(on("a", "x", ""))
	m.setJob(aiJobs, in("q", 2*time.Minute, gang("later", 1)), Waiting, "1")
	m.setJob(aiJobs, in("q", time.Minute, gang("first", 1)), Waiting, "1")
	m.setJob(aiJobs, in("other", 0, gang("elsewhere", 1)), Waiting, "1")

	assert.Equal(t, QueueFigures{Depth: 2, Oldest: noon.Add(time.Minute), Running: 1, Usage: gpus(2)}, m.queueFigures("q"))
	assert.Equal(t, QueueFigures{Depth: 1, Oldest: noon}, m.queueFigures("other"))
	m.setJob(aiJobs, in("other", 0, gang("first", 1)), Waiting, "2")
	m.dropJob("elsewhere")
	assert.Equal(t, 1, m.queueFigures("q").Depth, "one went to another queue")
	assert.Equal(t, 1, m.queueFigures("other").Depth)
	m.dropJob("first")
	assert.NotContains(t, m.inQueue, "other")
	assert.Equal(t, ClusterFigures{Nodes: 2, Ready: 1, GPUs: 4, FreeGPUs: 1, Jobs: 1},
		m.clusterFigures(map[string]string{"gpu": "a100"}, "a100s"))
	assert.Equal(t, ClusterFigures{Nodes: 3, Ready: 2, GPUs: 8, FreeGPUs: 5}, m.clusterFigures(nil, "all"))
}

func TestWhatThereIsOnNodes(t *testing.T) {
	m := newModel()
	for _, name := range []string{"a", "b", "c", "d"} {
		m.setNode(anyNode(name, 4))
	}
	m.setJob(aiJobs, gang("j", 3, "a", "a", "b"), Holding, "1") // one of its pods exists
	m.setJob(aiJobs, gang("w", 4), Waiting, "1")
	for _, p := range []*pod{on("a", "p1", "j"), on("a", "x", ""), on("c", "y", ""), on("d", "late", "gone")} {
		m.setPod(p)
	}
	takes := func(n int64) capacity.Resources { return capacity.Resources{MilliCPU: 1000 * n, GPUs: n} }
	assert.Equal(t, map[string]NodeUse{
		"a": {Taken: takes(3), Jobs: true}, "b": {Taken: takes(1), Jobs: true}, "c": {Taken: takes(1)}, "d": {Taken: takes(1), Jobs: true}, "none": {},
	}, m.nodeUses([]string{"a", "b", "c", "d", "none"}))
}

func TestRequestsOf(t *testing.T) {
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}}}},
		Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")},
				Limits: corev1.ResourceList{
					"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("2"),
				},
			}},
			{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"ephemeral-storage": resource.MustParse("1Ki"), "rdma/hca": resource.MustParse("1"),
			}}},
		},
	}
	assert.Equal(t, scheduler.Resources{
		MilliCPU: 3000, Memory: 1 << 30, EphemeralStorage: 1 << 10, GPUs: 2, Pods: 1, Extended: map[corev1.ResourceName]int64{"rdma/hca": 1},
	}, RequestsOf(spec), "limits stand for requests that are not set, and what starts first counts while it is more")
	assert.Empty(t, spec.Containers[0].Resources.Requests.Memory().Value(), "the spec is not changed")
}

// A negative amount would make room on its node, and in its quota, that is not there.
func TestRequestsOfAreNeverNegative(t *testing.T) {
	requests := func(sign string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "rdma/hca", "pods"} {
			list[name] = resource.MustParse(sign + "4")
		}
		return list
	}
	plain := func(in, limits corev1.ResourceList) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: in, Limits: limits}}}}
	}
	none := scheduler.Resources{Pods: 1}
	assert.Equal(t, none, RequestsOf(plain(requests("-"), nil)))
	assert.Equal(t, none, RequestsOf(plain(nil, requests("-"))))
	beside := plain(requests("-"), nil)
	beside.Containers = append(beside.Containers, plain(requests(""), nil).Containers...)
	assert.Equal(t, RequestsOf(plain(requests(""), nil)), RequestsOf(beside), "it takes nothing from another container")
	assert.Equal(t, none, RequestsOf(&corev1.PodSpec{Overhead: requests("-")}))
}

// A model that was kept up to date event by event says the same as one that was told only how it ended.
func TestTheWayDoesNotMatter(t *testing.T) {
	straight, detour := newModel(), newModel()
	for i := range 8 {
		name := "n" + strconv.Itoa(i%3)
		detour.setNode(anyNode(name, int64(i)))
		p := on(name, "p"+strconv.Itoa(i%4), "j"+strconv.Itoa(i%2))
		detour.setPod(p)
		if i%3 == 0 {
			detour.dropNode(name)
		}
		if i%4 == 1 {
			detour.dropPod(p.UID)
		}
		detour.setJob(aiJobs, gang("j"+strconv.Itoa(i%2), 1+i%2, "n1"), State(i%3), strconv.Itoa(i))
	}
	for _, n := range detour.nodes {
		if n.exists {
			straight.setNode(n.Node)
		}
	}
	for _, p := range detour.pods {
		straight.setPod(p)
	}
	for _, j := range detour.jobs {
		straight.setJob(aiJobs, j.Job, j.state, "1")
	}
	assert.Equal(t, sorted(straight.snapshot(noon)), sorted(detour.snapshot(noon)))
	assert.Equal(t, straight.waiting, detour.waiting)
}

func sorted(s scheduler.Snapshot) scheduler.Snapshot {
	slices.SortFunc(s.Nodes, func(a, b scheduler.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, jobs := range [][]scheduler.Job{s.Running, s.Pending} {
		slices.SortFunc(jobs, func(a, b scheduler.Job) int { return cmp.Compare(a.Name, b.Name) })
	}
	return s
}
