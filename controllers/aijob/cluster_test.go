package aijob

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// decider admits what the test says.
type decider struct {
	mu        sync.Mutex
	decisions map[types.UID]queueing.Decision
	changes   chan event.GenericEvent
}

func (d *decider) Decision(uid types.UID) (queueing.Decision, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision, ok := d.decisions[uid]
	return decision, ok
}

func (d *decider) Changes(string) source.Source {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes = make(chan event.GenericEvent, 1000)
	return source.Channel(d.changes, &handler.EnqueueRequestForObject{})
}

// decide on a job; nil forgets what was decided.
func (d *decider) decide(job *aiplatformv1alpha1.AIJob, decision *queueing.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if decision == nil {
		delete(d.decisions, job.UID)
		return
	}
	d.decisions[job.UID] = *decision
	select {
	case d.changes <- event.GenericEvent{Object: job.DeepCopy()}:
	default: // the manager is dead
	}
}

// cluster is a namespace of a real API server in which the test plays admission, kube-scheduler, kubelets and the garbage collector.
type cluster struct {
	client.Client

	t         *testing.T
	config    *rest.Config
	namespace string
	decider   *decider
	// real has the operator's own admission decide in the place of the test.
	real bool
	// nodes that admission gives to the members of a job, from the first; full lets it give none.
	nodes []string
	full  bool
	// stuck keeps pods from being placed, and deaf ones do not end when they are deleted.
	stuck, deaf bool
	// wrap the managers' requests.
	wrap []transport.WrapperFunc
	// created are the names of all pods that were ever seen.
	created []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	t.Parallel() // each cluster is a namespace of its own
	return newExclusiveCluster(t)
}

// newExclusiveCluster is newCluster for a test that others must not run beside.
func newExclusiveCluster(t *testing.T) *cluster {
	t.Helper()
	config := api.Config(t)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &cluster{
		Client: c, t: t, config: config, namespace: namespace.Name, nodes: []string{"a", "b", "c", "d"},
		decider: &decider{decisions: map[types.UID]queueing.Decision{}},
	}
}

// manager is a manager that runs.
type manager struct {
	*crash.Traffic

	events  *events.FakeRecorder
	metrics *prometheus.Registry
	stop    func()
}

// start runs a manager for the cluster, set up like the real one. It crashes at the cut; nil for never.
func (c *cluster) start(at *crash.Cut) *manager {
	c.t.Helper()
	m := &manager{Traffic: &crash.Traffic{Cut: at}, events: events.NewFakeRecorder(1000), metrics: prometheus.NewRegistry()}
	mgr := managers.New(c.t, c.config, c.Scheme(), cache.Options{DefaultNamespaces: map[string]cache.Config{c.namespace: {}}}, append(c.wrap, m.Wrap)...)
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: m.events,
		Metrics: metrics.NewAIJobs(m.metrics), Decider: c.decider,
	}
	if c.real {
		service := queueing.New(mgr, nil)
		service.Add(Source(workerdefaults.Defaults{}, nil))
		require.NoError(c.t, mgr.Add(service))
		reconciler.Decider = service
	}
	require.NoError(c.t, reconciler.SetupWithManager(mgr.Context, mgr, Options{Concurrency: 2, Namespaces: []string{c.namespace}}))
	m.stop = mgr.Run()
	return m
}

// until lets the cluster go on until something has happened.
func (c *cluster) until(what string, happened func() bool) {
	c.t.Helper()
	await(c.t, what, func() bool {
		c.step()
		return happened()
	})
}

// step does what the parts of a cluster do that the test plays.
func (c *cluster) step() {
	c.t.Helper()
	if !c.real {
		c.admit()
	}
	for _, pod := range c.pods() {
		if !slices.Contains(c.created, pod.Name) {
			c.created = append(c.created, pod.Name)
		}
		switch {
		case pod.DeletionTimestamp != nil:
			if !c.deaf {
				require.NoError(c.t, client.IgnoreNotFound(c.Delete(c.t.Context(), &pod, client.GracePeriodSeconds(0))))
			}
		case pod.Spec.NodeName == "" && !c.stuck:
			c.place(&pod)
		}
	}
}

// admit plays admission: it decides on jobs that wait, and forgets what has reached their status.
func (c *cluster) admit() {
	c.t.Helper()
	var jobs aiplatformv1alpha1.AIJobList
	require.NoError(c.t, c.List(c.t.Context(), &jobs, client.InNamespace(c.namespace)))
	for i := range jobs.Items {
		job := &jobs.Items[i]
		described, state := Source(workerdefaults.Defaults{}, nil).Job(job)
		decision, decided := c.decider.Decision(job.UID)
		switch {
		case state == queueing.Waiting && c.full:
			if !decided || decision.Wait == nil {
				c.decider.decide(job, &queueing.Decision{Wait: &scheduler.Wait{Position: 1, Reason: "InsufficientCapacity", Message: "no node fits"}})
			}
		case state == queueing.Waiting:
			nodes := c.nodes[:described.Groups[0].Count]
			c.decider.decide(job, &queueing.Decision{Admitted: &scheduler.Admission{UID: job.UID, Nodes: nodes}})
		case state == queueing.Holding && described.Stopping, state == queueing.Uninvolved, decided && decision.Admitted != nil:
			c.decider.decide(job, nil)
		}
	}
}

func (c *cluster) pods() []corev1.Pod {
	c.t.Helper()
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, client.InNamespace(c.namespace), client.HasLabels{aiplatformv1alpha1.LabelAIJob}))
	return pods.Items
}

// place binds a pod to the node that it demands, and runs it.
func (c *cluster) place(pod *corev1.Pod) {
	c.t.Helper()
	node := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	err := c.SubResource("binding").Create(c.t.Context(), pod, binding)
	if err == nil {
		err = c.Get(c.t.Context(), client.ObjectKeyFromObject(pod), pod)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it was deleted meanwhile
		return
	}
	require.NoError(c.t, err)
	c.patchPod(pod, corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now()),
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, Image: "x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}},
	})
}

func (c *cluster) patchPod(pod *corev1.Pod, status corev1.PodStatus) {
	c.t.Helper()
	next := pod.DeepCopy()
	next.Status = status
	require.NoError(c.t, client.IgnoreNotFound(c.Status().Patch(c.t.Context(), next, client.MergeFrom(pod))))
}

// exit ends the pod of a name.
func (c *cluster) exit(name string, code int32, words string) {
	c.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, pod))
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	c.patchPod(pod, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
		Name: container, Image: "x", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Message: words, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
		}},
	}}})
}

// submit creates a job.
func (c *cluster) submit(b *builders.AIJobBuilder) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	job := b.Namespace(c.namespace).ToCreate()
	require.NoError(c.t, c.Create(c.t.Context(), job))
	return job
}

// patch merges into a job.
func (c *cluster) patch(job *aiplatformv1alpha1.AIJob, patch map[string]any) {
	c.t.Helper()
	data, err := json.Marshal(patch)
	require.NoError(c.t, err)
	require.NoError(c.t, c.Patch(c.t.Context(), job, client.RawPatch(types.MergePatchType, data)))
}

// reach lets the cluster go on until a job is as it should be, and reads it.
func (c *cluster) reach(job *aiplatformv1alpha1.AIJob, what string, is func(*aiplatformv1alpha1.AIJobStatus) bool) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("it is %s: %s, %v", short(job.Status), job.Status.Message, job.Status)
		}
	}()
	c.until("the job being "+what, func() bool {
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(job), job))
		return is(&job.Status)
	})
}

// reachPhase is reach of a phase, and a number of tries.
func (c *cluster) reachPhase(job *aiplatformv1alpha1.AIJob, phase aiplatformv1alpha1.AIJobPhase, tries int32) {
	c.t.Helper()
	c.reach(job, fmt.Sprintf("%s after %d tries", phase, tries), func(s *aiplatformv1alpha1.AIJobStatus) bool {
		return s.Phase == phase && attemptOf(s) == tries
	})
}

// quiet lets the cluster go on until the manager has not written for a while.
func (c *cluster) quiet(m *manager) {
	c.t.Helper()
	last, since := -1, time.Now()
	c.until("quiet", func() bool {
		if now := len(m.Written()); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

// told are the events so far.
func (m *manager) told() []string {
	var list []string
	for {
		select {
		case event := <-m.events.Events:
			list = append(list, event)
		default:
			return list
		}
	}
}

// tells lets the cluster go on until each of some events has come, which is after the status that it is about.
func (c *cluster) tells(m *manager, events ...string) {
	c.t.Helper()
	var told string
	defer func() {
		if c.t.Failed() {
			c.t.Log(told)
		}
	}()
	c.until(fmt.Sprintf("the events %q", events), func() bool {
		told += strings.Join(m.told(), "\n") + "\n"
		return !slices.ContainsFunc(events, func(event string) bool { return !strings.Contains(told, event) })
	})
}

// unchanged fails when looking at a job again writes anything.
func (c *cluster) unchanged(m *manager, job *aiplatformv1alpha1.AIJob) {
	c.t.Helper()
	c.quiet(m)
	before := m.Written()
	for i := range 3 {
		c.patch(job, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"touched": fmt.Sprint(i)}}})
	}
	c.quiet(m)
	assert.Empty(c.t, m.Written()[len(before):])
}

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }
