package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

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
	nodeReturns    = "node returns"
	nodeClockOff   = "clock of a node jumps"
)

var nodeFaults = []string{podFails, podOutOfMemory, podEvicted, podRefused, podDeleted, podSlow, nodeDies, nodeReturns, nodeClockOff}

// kubelets are those of all nodes. They look at the pods several times a second.
type kubelets struct {
	client client.Client
	faults *tally
	checks *tally
	wrong  func(format string, arguments ...any)

	mu       sync.Mutex
	random   *rand.Rand
	on       bool
	nodes    map[string]*node
	programs map[types.UID]*program
}

type node struct {
	dead bool
	back time.Time     // when it returns
	skew time.Duration // of its clock
}

// program is what runs in a pod.
type program struct {
	pod     types.NamespacedName
	rank    string // the job and the pod in it; no two of the same run at a time
	job     string
	node    string
	state   programState
	due     time.Time // of its next state
	code    int32
	reason  string
	evicted bool
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

func newKubelets(c client.Client, faults, checks *tally, wrong func(string, ...any)) *kubelets {
	return &kubelets{
		client: c, faults: faults, checks: checks, wrong: wrong, random: rand.New(rand.NewPCG(0, 0)),
		nodes: map[string]*node{}, programs: map[types.UID]*program{},
	}
}

func (k *kubelets) begin(seed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.random, k.on = rand.New(rand.NewPCG(seed, 2)), true
}

// end has all nodes return, and all programs succeed from now on.
func (k *kubelets) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.on = false
	for _, n := range k.nodes {
		n.back, n.skew = time.Now(), 0
	}
}

// chance is for faults.
func (k *kubelets) chance(probability float64, fault string) bool {
	if !k.on || k.random.Float64() >= probability {
		return false
	}
	k.faults.add(fault)
	return true
}

func (k *kubelets) within(least, most time.Duration) time.Duration {
	return least + time.Duration(k.random.Int64N(int64(most-least)))
}

// join makes a node that these kubelets play.
func (k *kubelets) join(ctx context.Context, object *corev1.Node) error {
	name := object.Name
	metav1.SetMetaDataLabel(&object.ObjectMeta, corev1.LabelHostname, name)
	if err := client.IgnoreAlreadyExists(k.client.Create(ctx, object)); err != nil {
		return err
	}
	before := object.DeepCopy()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	object.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
	}}}
	if err := k.client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[name] = &node{}
	return nil
}

// leave is the end of an instance: its programs die, and its node does not answer any more.
func (k *kubelets) leave(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.nodes[name]; n != nil {
		n.dead, n.back = true, time.Time{}
		k.programsDie(name)
		delete(k.nodes, name)
	}
}

func (k *kubelets) programsDie(node string) {
	for _, p := range k.programs {
		if p.node == node && p.state != over {
			p.state, p.code, p.reason = over, 137, "Unknown"
			k.peersEnd(p)
		}
	}
}

// peersEnd has the other programs of a training end soon, as they do when the connection to one of them breaks.
func (k *kubelets) peersEnd(lost *program) {
	for _, p := range k.programs {
		if p != lost && p.job == lost.job && p.state == running && k.random.Float64() < 0.7 {
			p.code, p.reason = 75, "Error"
			p.due = time.Now().Add(k.within(100*time.Millisecond, time.Second))
		}
	}
}

// run plays the kubelets until the context ends.
func (k *kubelets) run(ctx context.Context) {
	for beat := 0; ctx.Err() == nil; beat++ {
		var pods corev1.PodList
		if err := k.client.List(ctx, &pods); err == nil {
			k.look(ctx, pods.Items)
		}
		if beat%10 == 0 {
			k.renew(ctx)
			k.nodesDie()
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// renew renews the leases of the nodes that live, by which Kubernetes knows that they do.
func (k *kubelets) renew(ctx context.Context) {
	k.mu.Lock()
	skews := map[string]time.Duration{}
	for name, n := range k.nodes {
		if !n.dead {
			skews[name] = n.skew
		}
	}
	k.mu.Unlock()
	for name, skew := range skews {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
		spec := coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(skew))),
		}
		err := k.client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		switch {
		case apierrors.IsNotFound(err):
			lease.Spec = spec
			_ = k.client.Create(ctx, lease)
		case err == nil:
			lease.Spec = spec
			_ = k.client.Update(ctx, lease)
		}
		k.ready(ctx, name)
	}
}

// ready takes back what the node controller wrote on a node that had died.
func (k *kubelets) ready(ctx context.Context, name string) {
	object := &corev1.Node{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return
	}
	for i := range object.Status.Conditions {
		condition := &object.Status.Conditions[i]
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			condition.Status, condition.Reason, condition.LastTransitionTime = corev1.ConditionTrue, "KubeletReady", metav1.Now()
			_ = k.client.Status().Update(ctx, object)
			return
		}
	}
}

// nodesDie lets nodes die, return, and lose the time.
func (k *kubelets) nodesDie() {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := make([]string, 0, len(k.nodes))
	for name := range k.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		n := k.nodes[name]
		switch {
		case n.dead && !n.back.IsZero() && !time.Now().Before(n.back):
			n.dead = false
			k.faults.add(nodeReturns)
		case !n.dead && k.chance(0.08, nodeDies):
			n.dead, n.back = true, time.Now().Add(k.within(2*time.Second, 30*time.Second))
			k.programsDie(name)
		case !n.dead && k.chance(0.05, nodeClockOff):
			n.skew = k.within(-5*time.Second, 5*time.Second)
		}
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
		if p.state == running && !k.nodes[p.node].isDead() { // removed by force: the kubelet stops it when it sees that
			p.state = over
			continue
		}
		if p.state == over || p.state == starting {
			delete(k.programs, uid)
		}
	}
	for i := range pods {
		pod := &pods[i]
		if n := k.nodes[pod.Spec.NodeName]; n != nil && !n.dead {
			k.lookAt(ctx, pod, n)
		}
	}
}

func (n *node) isDead() bool { return n == nil || n.dead }

func (k *kubelets) lookAt(ctx context.Context, pod *corev1.Pod, n *node) {
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
		k.start(ctx, pod, p, n)
	case running:
		if k.chance(0.006, podEvicted) {
			p.evicted, p.state, p.code, p.reason = true, over, 137, "Error"
			k.peersEnd(p)
			k.report(ctx, pod, p, n)
			return
		}
		if k.chance(0.006, podDeleted) {
			_ = k.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
			return
		}
		if now.Before(p.due) {
			return
		}
		p.state = over
		if p.code != 0 {
			k.peersEnd(p)
		}
		k.report(ctx, pod, p, n)
	case over:
		if !ended {
			k.report(ctx, pod, p, n)
		}
	case stopping:
	}
}

// accept takes a new pod on.
func (k *kubelets) accept(ctx context.Context, pod *corev1.Pod) {
	rank, job := rankOf(pod)
	p := &program{pod: client.ObjectKeyFromObject(pod), rank: rank, job: job, node: pod.Spec.NodeName, due: time.Now().Add(k.within(100*time.Millisecond, 1500*time.Millisecond))}
	k.programs[pod.UID] = p
	switch {
	case k.chance(0.04, podRefused):
		p.state = over
		status := pod.Status
		status.Phase, status.Reason, status.Message = corev1.PodFailed, "UnexpectedAdmissionError", "Allocate failed"
		k.write(ctx, pod, status)
	case k.chance(0.03, podSlow):
		p.due = time.Now().Add(k.within(2*time.Second, 8*time.Second))
		status := pod.Status
		status.ContainerStatuses = containers(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ErrImagePull", Message: "failed to pull the image: connection reset",
		}})
		k.write(ctx, pod, status)
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
	p.state, p.started, p.due = running, time.Now(), time.Now().Add(k.within(time.Second, 6*time.Second))
	switch {
	case k.chance(0.08, podFails):
		p.code, p.reason = 1, "Error"
	case k.chance(0.04, podOutOfMemory):
		p.code, p.reason = 137, "OOMKilled"
	default:
		p.code, p.reason = 0, "Completed"
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
	k.write(ctx, pod, status)
}

// stop ends the program of a pod that is deleted, and then removes the pod.
func (k *kubelets) stop(ctx context.Context, pod *corev1.Pod, p *program, n *node) {
	switch {
	case p.state == starting:
		p.state = over
	case p.state == running:
		p.state, p.due = stopping, time.Now().Add(k.within(100*time.Millisecond, time.Second))
		return
	case p.state == stopping && time.Now().Before(p.due):
		return
	case p.state == stopping:
		p.state, p.code, p.reason = over, 143, "Error"
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
func (k *kubelets) write(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) {
	pod.Status = status
	_ = k.client.Status().Update(ctx, pod)
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

// rankOf says what job a pod belongs to, and its place there.
func rankOf(pod *corev1.Pod) (rank, job string) {
	for _, label := range []string{mlv1.LabelTrainingJob, aiplatformv1alpha1.LabelAIJob, spotv1alpha1.LabelSpotInstanceJob} {
		if name := pod.Labels[label]; name != "" {
			job = pod.Namespace + "/" + label + "/" + name
			parts := []string{job}
			for _, index := range []string{"batch.kubernetes.io/job-completion-index", aiplatformv1alpha1.LabelMember, spotv1alpha1.LabelReplica} {
				parts = append(parts, pod.Labels[index])
			}
			return strings.Join(parts, "/"), job
		}
	}
	job = fmt.Sprintf("%s/%s", pod.Namespace, pod.Name)
	return job, job
}
