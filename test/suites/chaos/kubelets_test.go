package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// What happens to nodes and pods.
const (
	podFails       = "pod fails"
	podOutOfMemory = "pod killed for its memory"
	podEvicted     = "pod evicted"
	podRefused     = "pod refused by its node"
	podDeleted     = "pod deleted by a user"
	podSlow        = "pod whose image cannot be pulled for a while"
	nodeDies       = "node dies"
	nodeIsSilent   = "node dies for longer than it takes Kubernetes to see it"
	nodeStaysDead  = "node stays dead until all else has ended"
	nodeReturns    = "node returns"
	nodeClockOff   = "clock of a node jumps"
)

var nodeFaults = []string{
	podFails, podOutOfMemory, podEvicted, podRefused, podDeleted, podSlow, nodeDies, nodeIsSilent, nodeStaysDead, nodeReturns, nodeClockOff,
}

// kubelets are those of all nodes. They look at the pods several times a second.
type kubelets struct {
	client client.Client
	cached client.Reader // has all pods and nodes, and may be a moment late
	faults *tally
	checks *tally
	wrong  func(format string, arguments ...any)

	history *history

	mu       sync.Mutex
	seed     uint64
	options  options
	on       bool
	began    time.Time
	stays    bool // the node that stays dead has died
	nodes    map[string]*node
	programs map[types.UID]*program
	runs     map[string]int // how many programs each rank had
}

type node struct {
	random *rand.Rand
	spot   bool // an instance of the provider, which comes and goes
	dead   bool
	silent bool          // for longer than it takes Kubernetes to see it, though the faults are over
	stays  bool          // dead until it is revived
	back   time.Time     // when it returns
	skew   time.Duration // of its clock
	boots  int           // how often it was started
	death  *death        // the last one
}

// program is what runs in a pod.
type program struct {
	random  *rand.Rand
	pod     types.NamespacedName
	uid     types.UID
	rank    string // the job and the pod in it; no two of the same run at a time
	host    string
	of      attempt
	node    string
	state   programState
	due     time.Time // of its next state
	befalls string    // what happens then in place of its end
	code    int32
	reason  string
	evicted bool
	refused bool // by the kubelet, before it ran
	failed  bool // by itself
	started time.Time
}

type programState int

const (
	starting programState = iota
	running
	stopping
	over
)

func (p *program) alive() bool { return p.state == running || p.state == stopping }

func newKubelets(c client.Client, faults, checks *tally, history *history, wrong func(string, ...any)) *kubelets {
	return &kubelets{
		client: c, faults: faults, checks: checks, wrong: wrong, history: history,
		nodes: map[string]*node{}, programs: map[types.UID]*program{}, runs: map[string]int{},
	}
}

// begin lets a seed decide what befalls each node and each program.
func (k *kubelets) begin(seed uint64, o options) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seed, k.options, k.on, k.stays, k.began = seed, o, true, false, time.Now()
	clear(k.runs)
	for name, n := range k.nodes {
		n.random = source(seed, "node "+name)
	}
}

// end has the nodes return, but for those that are dead for long, and all programs succeed from now on.
func (k *kubelets) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.on = false
	for _, n := range k.nodes {
		n.skew = 0
		if !n.stays && !n.silent {
			n.back = time.Now()
		}
	}
}

// staysDead says whether a node is dead that returns only when it is revived.
func (k *kubelets) staysDead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.nodes {
		if n.stays {
			return true
		}
	}
	return false
}

// revive has the node return that stayed dead.
func (k *kubelets) revive() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.nodes {
		if n.stays {
			n.back = time.Now()
		}
	}
}

// chance is for faults.
func (k *kubelets) chance(random *rand.Rand, probability float64, fault string) bool {
	if !k.on || random.Float64() >= probability {
		return false
	}
	k.faults.add(fault)
	return true
}

func within(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// join makes a node that these kubelets play.
func (k *kubelets) join(ctx context.Context, object *corev1.Node) error {
	name := object.Name
	metav1.SetMetaDataLabel(&object.ObjectMeta, corev1.LabelHostname, name)
	if err := client.IgnoreAlreadyExists(k.client.Create(ctx, object)); err != nil {
		return err
	}
	before := object.DeepCopy()
	spot, processors := object.Labels[spotv1alpha1.LabelSpotInstanceVM] != "", "3"
	if spot { // on which alone there is room for a SpotInstanceJob
		processors = "4"
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(processors), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	object.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, NodeInfo: corev1.NodeSystemInfo{BootID: bootID(0)}, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
	}}}
	if err := k.client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[name] = &node{random: source(k.seed, "node "+name), spot: spot}
	return nil
}

// leave is the end of an instance: its programs die, and its node does not answer any more.
func (k *kubelets) leave(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.nodes[name]; n != nil {
		k.die(name, n)
		delete(k.nodes, name)
	}
}

func bootID(boots int) string { return fmt.Sprintf("boot-%d", boots) }

// die is the death of a node: its programs end, which nothing reports. A container runtime that starts again knows that they ended, and not
// how (containerd says 255, Unknown). What had not begun begins when the node returns.
func (k *kubelets) die(name string, n *node) {
	n.dead, n.back, n.death = true, time.Time{}, &death{began: time.Now()}
	for _, p := range k.programs {
		if p.node != name || p.state == over {
			continue
		}
		k.history.ofAttempt(p.of, func(f *outcome) { f.deaths = append(f.deaths, n.death) })
		if p.alive() {
			p.state, p.failed, p.code, p.reason = over, false, 255, "Unknown"
			k.peersEnd(p)
		}
	}
}

// peersEnd has the other programs of a training end soon, as they do when the connection to one of them breaks.
func (k *kubelets) peersEnd(lost *program) {
	for _, p := range k.programs {
		if p != lost && p.of == lost.of && p.state == running && !p.failed && p.random.Float64() < 0.7 {
			p.befalls, p.code, p.reason = "", 75, "Error"
			p.due = time.Now().Add(within(p.random, 100*time.Millisecond, time.Second))
			k.history.ofAttempt(p.of, func(f *outcome) { f.left++ })
		}
	}
}

// run plays the kubelets until the context ends. Leases are renewed beside all else: what takes long for a pod must make no node silent.
func (k *kubelets) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { k.repeat(ctx, time.Second, newLeases(k).renew) })
	running.Go(func() {
		k.repeat(ctx, 2*time.Second, func(ctx context.Context) {
			k.nodesDie()
			k.nodesReturn(ctx)
		})
	})
	k.repeat(ctx, 200*time.Millisecond, func(ctx context.Context) {
		var pods corev1.PodList
		if err := k.cached.List(ctx, &pods); err == nil {
			k.look(ctx, pods.Items)
		}
	})
}

func (k *kubelets) repeat(ctx context.Context, pause time.Duration, do func(context.Context)) {
	for ctx.Err() == nil {
		do(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// leases are those of the nodes, by which Kubernetes knows that they live.
type leases struct {
	*kubelets

	known map[string]*coordinationv1.Lease
}

func newLeases(k *kubelets) *leases { return &leases{k, map[string]*coordinationv1.Lease{}} }

// renew renews those of the nodes that live.
func (l *leases) renew(ctx context.Context) {
	l.mu.Lock()
	skews := map[string]time.Duration{}
	for name, n := range l.nodes {
		if !n.dead {
			skews[name] = n.skew
		}
	}
	l.mu.Unlock()
	for name, skew := range skews {
		lease := l.known[name]
		if lease == nil {
			lease = l.find(ctx, name)
		}
		if lease == nil {
			continue
		}
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(skew)))
		if l.client.Update(ctx, lease) != nil {
			lease = nil // it is read again
		}
		l.known[name] = lease
		l.ready(ctx, name)
	}
}

// find reads the lease of a node, and makes it when there is none; nil when neither can be done.
func (l *leases) find(ctx context.Context, name string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	err := l.client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if err == nil {
		return lease
	}
	object := &corev1.Node{}
	if !apierrors.IsNotFound(err) || l.client.Get(ctx, client.ObjectKey{Name: name}, object) != nil {
		return nil
	}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40)}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: object.UID}} // it goes with the node
	if l.client.Create(ctx, lease) != nil {
		return nil
	}
	return lease
}

// ready takes back what the node controller wrote on a node that had died.
func (k *kubelets) ready(ctx context.Context, name string) {
	object := &corev1.Node{}
	if k.cached.Get(ctx, client.ObjectKey{Name: name}, object) != nil || readyOf(object) == nil {
		return
	}
	if k.client.Get(ctx, client.ObjectKey{Name: name}, object) != nil {
		return
	}
	if condition := readyOf(object); condition != nil {
		k.wasTakenForDead(name, condition.LastTransitionTime.Time)
		condition.Status, condition.Reason, condition.LastTransitionTime = corev1.ConditionTrue, "KubeletReady", metav1.Now()
		_ = k.client.Status().Update(ctx, object)
	}
}

// readyOf is the condition of a node that is not ready; nil when it is.
func readyOf(object *corev1.Node) *corev1.NodeCondition {
	for i := range object.Status.Conditions {
		if condition := &object.Status.Conditions[i]; condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return condition
		}
	}
	return nil
}

// wasTakenForDead notes that Kubernetes took a node for dead since a time, because this machine is busy, for example: if it lived then, the
// manager is right to count what it saw of the pods there, and right not to.
func (k *kubelets) wasTakenForDead(name string, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	if n == nil || n.death != nil && !k.history.endOf(n.death).Before(since) {
		return
	}
	k.open(name)
}

// isNoticed notes that a node is to be taken back. The failure of a job counts as caused by that when a worker is there.
func (k *kubelets) isNoticed(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open(name)
}

// open lets the ends of the attempts with a program on a node be counted either way.
func (k *kubelets) open(name string) {
	for _, p := range k.programs {
		if p.node == name {
			k.history.ofAttempt(p.of, func(f *outcome) { f.open = true })
		}
	}
}

// nodesDie lets nodes die, and lose the time.
func (k *kubelets) nodesDie() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.nodes)) {
		n := k.nodes[name]
		switch {
		case n.dead || !k.on:
		case k.options.nodeStays && !k.stays && !n.spot && k.mayStayDead(name):
			k.faults.add(nodeStaysDead)
			k.die(name, n)
			k.stays, n.stays = true, true
		case k.chance(n.random, 0.02, nodeIsSilent):
			k.die(name, n)
			n.silent, n.back = true, time.Now().Add(within(n.random, nodeGrace()+2*time.Second, nodeGrace()+10*time.Second))
		case k.chance(n.random, 0.06, nodeDies):
			k.die(name, n)
			n.back = time.Now().Add(within(n.random, 2*time.Second, nodeGrace()))
		case k.chance(n.random, 0.05, nodeClockOff):
			n.skew = within(n.random, -5*time.Second, 5*time.Second)
		}
	}
}

// mayStayDead says whether programs run on a node that others work with. Those of an elastic job are looked for first: Kubernetes
// replaces none of its pods that has not failed.
func (k *kubelets) mayStayDead(node string) bool {
	for _, p := range k.programs {
		isElastic := strings.Contains(p.rank, "/elastic/")
		if p.node == node && p.host != "" && p.state == running && (isElastic || time.Since(k.began) > faultsLast*2/3) {
			return true
		}
	}
	return false
}

// nodesReturn lets nodes return whose time has come. First they tell that they were started again.
func (k *kubelets) nodesReturn(ctx context.Context) {
	k.mu.Lock()
	due := map[string]*node{}
	for name, n := range k.nodes {
		if n.dead && !n.back.IsZero() && !time.Now().Before(n.back) {
			due[name] = n
		}
	}
	k.mu.Unlock()
	for name, n := range due {
		object := &corev1.Node{}
		if k.client.Get(ctx, client.ObjectKey{Name: name}, object) != nil {
			continue
		}
		object.Status.NodeInfo.BootID = bootID(n.boots + 1)
		if k.client.Status().Update(ctx, object) != nil {
			continue
		}
		k.mu.Lock()
		n.boots++
		n.dead, n.silent, n.stays = false, false, false
		k.history.ends(n.death)
		k.faults.add(nodeReturns)
		k.mu.Unlock()
	}
}

// look does what is due for each pod.
func (k *kubelets) look(ctx context.Context, pods []corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	present := map[types.UID]bool{}
	for i := range pods {
		present[pods[i].UID] = true
	}
	for uid, p := range k.programs {
		if present[uid] {
			continue
		}
		if p.alive() { // removed by force: the kubelet stops it when it sees that
			p.state = over
			continue
		}
		delete(k.programs, uid)
	}
	for i := range pods {
		pod := &pods[i]
		if n := k.nodes[pod.Spec.NodeName]; n != nil && !n.dead {
			k.lookAt(ctx, pod, n, pods)
		}
	}
}

func (n *node) isDead() bool { return n == nil || n.dead }

func (k *kubelets) lookAt(ctx context.Context, pod *corev1.Pod, n *node, pods []corev1.Pod) {
	p := k.programs[pod.UID]
	now := time.Now()
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if p == nil {
		if ended || pod.DeletionTimestamp != nil {
			k.remove(ctx, pod)
			return
		}
		k.accept(ctx, pod)
		return
	}
	if pod.DeletionTimestamp != nil {
		k.stop(ctx, pod, p, n)
		return
	}
	switch p.state {
	case starting:
		if now.Before(p.due) {
			return
		}
		k.answersAlone(pod, pods)
		k.start(ctx, pod, p, n)
	case running:
		if !now.Before(p.due) {
			k.finish(ctx, pod, p, n)
		}
	case over:
		if !ended {
			k.report(ctx, pod, p, n)
		}
	case stopping:
	}
}

// finish lets happen what is due to a program that runs.
func (k *kubelets) finish(ctx context.Context, pod *corev1.Pod, p *program, n *node) {
	befalls := p.befalls
	p.befalls = ""
	switch {
	case befalls == podDeleted && k.on:
		k.faults.add(podDeleted)
		k.history.lost(pod)
		p.due = time.Now().Add(5 * time.Second) // it is stopped before
		_ = k.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		return
	case befalls == podEvicted && k.on:
		k.faults.add(podEvicted)
		k.history.lost(pod)
		p.evicted, p.code, p.reason = true, 137, "Error"
	case p.failed:
		k.history.ofAttempt(p.of, func(f *outcome) { f.untold[p.uid] = true })
	case p.code == 0:
		k.history.ofAttempt(p.of, func(f *outcome) { f.succeeded[placeOf(pod)] = true })
	}
	p.state = over
	if p.code != 0 {
		k.peersEnd(p)
	}
	k.report(ctx, pod, p, n)
}

// accept takes a new pod on.
func (k *kubelets) accept(ctx context.Context, pod *corev1.Pod) {
	p := &program{
		pod: client.ObjectKeyFromObject(pod), uid: pod.UID, rank: rankOf(pod), host: hostOf(pod), of: attemptOf(pod), node: pod.Spec.NodeName,
	}
	_, rank, _ := strings.Cut(p.rank, "/") // the namespace has another name each time
	p.random = source(k.seed, fmt.Sprintf("program %d of %s", k.runs[rank], rank))
	k.runs[rank]++
	p.due = time.Now().Add(within(p.random, 100*time.Millisecond, 1500*time.Millisecond))
	k.programs[pod.UID] = p
	switch {
	case k.chance(p.random, 0.04, podRefused):
		p.state, p.refused = over, true
		k.history.lost(pod)
		k.refuse(ctx, pod)
	case k.chance(p.random, 0.03, podSlow):
		p.due = time.Now().Add(within(p.random, 2*time.Second, 8*time.Second))
		status := pod.Status
		status.ContainerStatuses = containers(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ErrImagePull", Message: "failed to pull the image: connection reset",
		}})
		k.write(ctx, pod, status)
	}
}

// refuse says that a pod cannot run on its node.
func (k *kubelets) refuse(ctx context.Context, pod *corev1.Pod) {
	status := pod.Status
	status.Phase, status.Reason, status.Message = corev1.PodFailed, "UnexpectedAdmissionError", "Allocate failed"
	k.write(ctx, pod, status)
}

// answersAlone checks that no other pod has the host name of one that starts. The Services of jobs publish pods also while they are deleted.
func (k *kubelets) answersAlone(pod *corev1.Pod, pods []corev1.Pod) {
	host := hostOf(pod)
	if host == "" {
		return
	}
	k.checks.add(oneOfAHost)
	for i := range pods {
		other := &pods[i]
		ended := other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed
		if other.UID != pod.UID && hostOf(other) == host && !ended && other.Status.PodIP != "" {
			k.wrong("pod %s/%s starts, and %s has its host name %s and an address too", pod.Namespace, pod.Name, other.Name, host)
		}
	}
}

// start begins the program of a pod. At no time may another one of the same rank run.
func (k *kubelets) start(ctx context.Context, pod *corev1.Pod, p *program, n *node) {
	k.checks.add(oneOfARank)
	for _, other := range k.programs {
		if other != p && other.rank == p.rank && other.alive() && !k.nodes[other.node].isDead() {
			k.wrong("pod %s starts as %s while %s, which is the same, runs", p.pod, p.rank, other.pod)
		}
	}
	p.state, p.started, p.due = running, time.Now(), time.Now().Add(within(p.random, time.Second, 6*time.Second))
	if k.options.slow && p.host != "" && k.on {
		p.due = p.due.Add(nodeSilent + settling)
	}
	p.code, p.reason = 0, "Completed"
	switch early := p.random.Float64(); {
	case k.chance(p.random, 0.08, podFails):
		p.failed, p.code, p.reason = true, 1, "Error"
	case k.chance(p.random, 0.04, podOutOfMemory):
		p.failed, p.code, p.reason = true, 137, "OOMKilled"
	case early < 0.2 && k.on:
		p.befalls, p.due = podEvicted, time.Now().Add(within(p.random, 200*time.Millisecond, 6*time.Second))
		if early < 0.1 {
			p.befalls = podDeleted
		}
	}
	at := metav1.NewTime(p.started.Add(n.skew))
	k.write(ctx, pod, corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
		Conditions:        append(conditionsOf(pod, corev1.PodScheduled), corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}),
		ContainerStatuses: containers(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}),
	})
}

// report writes how the program of a pod ended.
func (k *kubelets) report(ctx context.Context, pod *corev1.Pod, p *program, n *node) {
	if p.refused {
		k.refuse(ctx, pod)
		return
	}
	at := metav1.NewTime(time.Now().Add(n.skew))
	status := *pod.Status.DeepCopy()
	status.Phase = corev1.PodFailed
	if p.code == 0 {
		status.Phase = corev1.PodSucceeded
	}
	if p.evicted {
		status.Reason, status.Message = "Evicted", "The node was low on resource: memory."
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", LastTransitionTime: at,
		})
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	status.ContainerStatuses = containers(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: p.code, Reason: p.reason, StartedAt: metav1.NewTime(p.started.Add(n.skew)), FinishedAt: at,
	}})
	if told := k.write(ctx, pod, status); told && p.failed {
		k.history.ofAttempt(p.of, func(f *outcome) {
			delete(f.untold, p.uid)
			f.failures[p.uid] = true
		})
	}
}

// stop ends the program of a pod that is deleted, and then removes the pod. A pod whose program has not begun is reported as failed before,
// as kubelets do since Kubernetes 1.27: that has the Job controller look at a Job again whose pod it did not know.
func (k *kubelets) stop(ctx context.Context, pod *corev1.Pod, p *program, n *node) {
	switch {
	case p.state == starting:
		p.state, p.started, p.failed, p.code, p.reason = over, time.Now(), false, 137, "ContainerStatusUnknown"
		k.report(ctx, pod, p, n)
	case p.state == running:
		p.state, p.due = stopping, time.Now().Add(within(p.random, 100*time.Millisecond, time.Second))
		return
	case p.state == stopping && time.Now().Before(p.due):
		return
	case p.state == stopping:
		p.state, p.failed, p.code, p.reason = over, false, 143, "Error"
		k.report(ctx, pod, p, n)
	}
	k.remove(ctx, pod)
}

func (k *kubelets) remove(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		_ = k.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}
}

// write writes a pod's status. What fails is written again later, since the pod is not yet as it should be.
func (k *kubelets) write(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) bool {
	pod.Status = status
	return k.client.Status().Update(ctx, pod) == nil
}

func conditionsOf(pod *corev1.Pod, kind corev1.PodConditionType) (found []corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			found = append(found, c)
		}
	}
	return found
}

func containers(pod *corev1.Pod, state corev1.ContainerState) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		all = append(all, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state, Ready: state.Running != nil})
	}
	return all
}

// rankOf is the job that a pod belongs to, and its place there.
func rankOf(pod *corev1.Pod) string {
	for _, label := range []string{mlv1.LabelTrainingJob, aiplatformv1alpha1.LabelAIJob, spotv1alpha1.LabelSpotInstanceJob} {
		if name := pod.Labels[label]; name != "" {
			parts := []string{pod.Namespace, label, name}
			for _, index := range []string{"batch.kubernetes.io/job-completion-index", aiplatformv1alpha1.LabelMember, spotv1alpha1.LabelReplica} {
				parts = append(parts, pod.Labels[index])
			}
			return strings.Join(parts, "/")
		}
	}
	return pod.Namespace + "/" + pod.Name
}

// placeOf is the number of a pod in its job; empty where a job has one pod.
func placeOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[batchv1.JobCompletionIndexAnnotation], pod.Labels[aiplatformv1alpha1.LabelMember])
}

// hostOf is the name by which the others of a job find a pod; empty for a pod without one.
func hostOf(pod *corev1.Pod) string {
	if pod.Spec.Hostname == "" || pod.Spec.Subdomain == "" {
		return ""
	}
	return pod.Spec.Hostname + "." + pod.Spec.Subdomain + "." + pod.Namespace
}
