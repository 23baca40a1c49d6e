package day

import (
	"container/heap"
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stretchr/testify/require"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

// How long things take in the cluster.
const (
	bootTime       = time.Minute      // from a running instance to a ready node
	startTime      = 5 * time.Second  // of a pod
	stopTime       = 2 * time.Second  // of a pod that is told to end
	agentTakes     = 10 * time.Second // the checkpoint agent, for a checkpoint
	nodeGraceTime  = 40 * time.Second // until a node that does not answer is not ready
	gpuName        = corev1.ResourceName("nvidia.com/gpu")
	writer         = client.FieldOwner("day")
	noticesSeen    = 0.7 // the share of preemptions that the node agent sees in time
	agentVersionIs = "v1"
)

// cluster is what runs in a cluster beside the operator: the scheduler, the Job controller, the collection of what has no
// owner, and on each node a kubelet, a checkpoint agent and the programs of the pods.
type cluster struct {
	world  *world
	client client.Client
	cache  cache.Cache

	mu    sync.Mutex
	plans plans
	order int

	// Of the goroutine of the world only, like all that follows.
	machines  map[string]*machine
	processes map[types.UID]*process
	told      map[types.UID]string
	images    map[string]time.Duration
	busy      map[types.UID]bool
	record    record
}

// machine is an instance that runs.
type machine struct {
	seen bool // the notice of its preemption was seen
	dead bool
}

type plan struct {
	at    time.Time
	order int
	do    func(now time.Time)
}

type plans []plan

func (p plans) Len() int { return len(p) }
func (p plans) Less(i, j int) bool {
	return p[i].at.Before(p[j].at) || p[i].at.Equal(p[j].at) && p[i].order < p[j].order
}
func (p plans) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)   { *p = append(*p, x.(plan)) }
func (p *plans) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}

func newCluster(w *world) *cluster {
	return &cluster{
		world: w, machines: map[string]*machine{}, processes: map[types.UID]*process{}, told: map[types.UID]string{},
		images: map[string]time.Duration{}, busy: map[types.UID]bool{},
	}
}

// begin watches the cluster.
func (c *cluster) begin() {
	t := c.world.t
	var err error
	c.cache, err = cache.New(c.world.config, cache.Options{Scheme: c.world.scheme})
	require.NoError(t, err)
	c.client, err = client.New(c.world.config, client.Options{
		Scheme: c.world.scheme, Cache: &client.CacheOptions{Reader: c.cache, Unstructured: true},
	})
	require.NoError(t, err)
	for _, kind := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &batchv1.Job{}, checkpointbackup.Object(agentVersionIs),
	} {
		_, err := c.cache.GetInformer(context.Background(), kind, cache.BlockUntilSynced(false))
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.cache.Start(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	require.True(t, c.cache.WaitForCacheSync(ctx))
}

// at plans something.
func (c *cluster) at(when time.Time, do func(now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order++
	heap.Push(&c.plans, plan{when, c.order, do})
}

func (c *cluster) next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.plans) == 0 {
		return time.Time{}, false
	}
	return c.plans[0].at, true
}

// release does what is due.
func (c *cluster) release(now time.Time) {
	for {
		c.mu.Lock()
		if len(c.plans) == 0 || c.plans[0].at.After(now) {
			c.mu.Unlock()
			return
		}
		due := heap.Pop(&c.plans).(plan)
		c.mu.Unlock()
		due.do(due.at)
	}
}

// instanceRuns, instanceNoticed and instanceGone are told by the provider, from a goroutine of its own.
func (c *cluster) instanceRuns(i fakegce.Instance) {
	c.at(i.Running.Add(bootTime), func(time.Time) { c.boot(i) })
}

func (c *cluster) instanceNoticed(i fakegce.Instance) {
	c.at(c.world.clock.Now(), func(now time.Time) { c.notice(i.Name, now) })
}

func (c *cluster) instanceGone(i fakegce.Instance) {
	c.at(i.Ended, func(time.Time) { c.die(i.Name, i.Ended) })
}

func (c *cluster) machine(name string) *machine {
	if c.machines[name] == nil {
		c.machines[name] = &machine{}
	}
	return c.machines[name]
}

// boot makes the node of an instance.
func (c *cluster) boot(i fakegce.Instance) {
	if c.machine(i.Name).dead {
		return
	}
	owner, _ := inventory.OwnerOf(&cloud.Instance{Name: i.Name, Labels: i.Labels})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: map[string]string{
		corev1.LabelHostname: i.Name, spotv1alpha1.LabelSpotInstanceVM: owner.VM.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: owner.VM.Namespace,
	}}}
	if !c.try(c.client.Create(context.Background(), node, writer)) {
		return
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("7900m"), corev1.ResourceMemory: resource.MustParse("27Gi"),
		corev1.ResourcePods: resource.MustParse("110"), gpuName: *resource.NewQuantity(i.GPUs, resource.DecimalSI),
	}
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.NewTime(c.world.clock.Now()),
	}}}
	// New nodes are tainted until a controller that is not here has seen them.
	c.try(c.client.Status().Update(context.Background(), node))
	c.untaint(i.Name)
}

// untaint takes off what an admission plugin puts on every new node.
func (c *cluster) untaint(name string) {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))
	c.try(c.client.Patch(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch, writer))
}

// notice is what the node agent does when it sees one; it may be too slow to.
func (c *cluster) notice(name string, now time.Time) {
	c.record.preemptions++
	if c.world.random.Float64() > noticesSeen {
		return
	}
	c.machine(name).seen = true
	c.try(nodenotice.Mark(context.Background(), c.client, name, nodenotice.Notice{
		Node: name, Source: nodenotice.MetadataServer, Time: now, Deadline: now.Add(nodenotice.Grace),
	}))
}

// die is the end of a machine: of its programs at once, of what Kubernetes knows of it later.
func (c *cluster) die(name string, at time.Time) {
	m := c.machine(name)
	m.dead = true
	for _, p := range c.processes {
		if p.node == name {
			c.end(p, at, m.seen)
		}
	}
	c.at(at.Add(nodeGraceTime), func(now time.Time) {
		var node corev1.Node
		if err := c.client.Get(context.Background(), client.ObjectKey{Name: name}, &node); err != nil {
			return
		}
		for i := range node.Status.Conditions {
			if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
				condition.Status, condition.Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
				condition.LastTransitionTime = metav1.NewTime(now)
			}
		}
		c.try(c.client.Status().Update(context.Background(), &node))
	})
}

// try says whether a write went through. What was changed or deleted meanwhile is read again.
func (c *cluster) try(err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return false
	}
	c.world.noteError("cluster: " + err.Error())
	return false
}

// sync does what the parts of the cluster have to do now. It says whether anything was done.
func (c *cluster) sync() bool {
	ctx := context.Background()
	var pods corev1.PodList
	var nodes corev1.NodeList
	var jobs batchv1.JobList
	backups := &unstructured.UnstructuredList{}
	backups.SetGroupVersionKind(checkpointbackup.GroupKind.WithVersion(agentVersionIs))
	for _, list := range []client.ObjectList{&pods, &nodes, &jobs, backups} {
		require.NoError(c.world.t, c.client.List(ctx, list))
	}
	v := newView(pods.Items, nodes.Items, jobs.Items)
	did := c.collect(ctx, v)
	did = c.runJobs(ctx, v) || did
	did = c.schedule(ctx, v) || did
	did = c.runPods(ctx, v) || did
	for i := range backups.Items {
		did = c.checkpoint(ctx, v, &backups.Items[i]) || did
	}
	return did
}

// view is what the cache has, by name.
type view struct {
	pods   []*corev1.Pod
	byName map[types.NamespacedName]*corev1.Pod
	nodes  map[string]*corev1.Node
	jobs   map[types.UID]*batchv1.Job
	of     map[types.UID][]*corev1.Pod
}

func newView(pods []corev1.Pod, nodes []corev1.Node, jobs []batchv1.Job) *view {
	v := &view{
		byName: map[types.NamespacedName]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		jobs: map[types.UID]*batchv1.Job{}, of: map[types.UID][]*corev1.Pod{},
	}
	for i := range pods {
		pod := &pods[i]
		v.pods = append(v.pods, pod)
		v.byName[client.ObjectKeyFromObject(pod)] = pod
		if owner := metav1.GetControllerOf(pod); owner != nil {
			v.of[owner.UID] = append(v.of[owner.UID], pod)
		}
	}
	for i := range nodes {
		v.nodes[nodes[i].Name] = &nodes[i]
	}
	for i := range jobs {
		v.jobs[jobs[i].UID] = &jobs[i]
	}
	return v
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
