package queueing_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

const (
	patience = 30 * time.Second
	gpu      = corev1.ResourceName("nvidia.com/gpu")
)

// cluster is a real API server with simulated nodes.
type cluster struct {
	client.Client
	t         *testing.T
	namespace string
	// zone is a label of the nodes of this test, and a selector of its jobs.
	zone string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c, err := client.New(server.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &cluster{c, t, namespace.Name, namespace.Name}
}

// node with so many GPUs.
func (c *cluster) node(name string, gpus int) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + name, Labels: map[string]string{"zone": c.zone}}}
	require.NoError(c.t, c.Create(c.t.Context(), node))
	c.t.Cleanup(func() { _ = c.Delete(context.Background(), node) })
	node.Status = corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			gpu: resource.MustParse(fmt.Sprint(gpus)), "cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	require.NoError(c.t, c.Status().Update(c.t.Context(), node))
	// The API server taints new nodes until the node controller finds them ready.
	node.Spec.Taints = nil
	require.NoError(c.t, c.Update(c.t.Context(), node))
	return node
}

// pod of another owner on a node.
func (c *cluster) pod(name string, node *corev1.Node, gpus int) *corev1.Pod {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace},
		Spec: corev1.PodSpec{NodeName: node.Name, TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{
			Name: "c", Image: "i:1", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse(fmt.Sprint(gpus))}},
		}}},
	}
	require.NoError(c.t, c.Create(c.t.Context(), pod))
	return pod
}

// change edits an AIJob that is to be created.
type change func(*aiplatformv1alpha1.AIJob)

func members(n int32) change {
	return func(j *aiplatformv1alpha1.AIJob) {
		if n > 1 {
			j.Spec.Gang = aiplatformv1alpha1.Gang{Enabled: ptr.To(true), MinMembers: n}
		}
	}
}

func priority(n int32) change { return func(j *aiplatformv1alpha1.AIJob) { j.Spec.Priority = &n } }

func queue(name string) change {
	return func(j *aiplatformv1alpha1.AIJob) { j.Spec.QueueName = name }
}

// submit a job whose members need a GPU each.
func (c *cluster) submit(name string, changes ...change) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	job := &aiplatformv1alpha1.AIJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace},
		Spec: aiplatformv1alpha1.AIJobSpec{
			JobType: "training", Image: "i:1", NodeSelector: map[string]aiplatformv1alpha1.LabelValue{"zone": aiplatformv1alpha1.LabelValue(c.zone)},
			Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse("1")}},
		},
	}
	for _, edit := range changes {
		edit(job)
	}
	require.NoError(c.t, c.Create(c.t.Context(), job))
	return job
}

// queue with a change of its spec.
func (c *cluster) queue(edit func(*aiplatformv1alpha1.AIJobQueueSpec)) *aiplatformv1alpha1.AIJobQueue {
	c.t.Helper()
	q := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	edit(&q.Spec)
	require.NoError(c.t, c.Create(c.t.Context(), q))
	c.t.Cleanup(func() { _ = c.Delete(context.Background(), q) })
	return q
}

func (c *cluster) now(job *aiplatformv1alpha1.AIJob) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	var now aiplatformv1alpha1.AIJob
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(job), &now))
	return &now
}

func (c *cluster) await(job *aiplatformv1alpha1.AIJob, phase aiplatformv1alpha1.AIJobPhase) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	var now *aiplatformv1alpha1.AIJob
	eventually(c.t, func() bool {
		now = c.now(job)
		return now.Status.Phase == phase
	}, "%s to be %s", job.Name, phase)
	return now
}

// awaitWait waits until a job says that it waits for a reason.
func (c *cluster) awaitWait(job *aiplatformv1alpha1.AIJob, reason string) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	var now *aiplatformv1alpha1.AIJob
	eventually(c.t, func() bool {
		now = c.now(job)
		return now.Status.Phase == aiplatformv1alpha1.AIJobQueued && now.Status.Reason == reason
	}, "%s to wait for %s", job.Name, reason)
	return now
}

// end a job as its controller does when its pods have ended.
func (c *cluster) end(job *aiplatformv1alpha1.AIJob) {
	c.t.Helper()
	now := c.now(job)
	now.Status.Phase = aiplatformv1alpha1.AIJobSucceeded
	require.NoError(c.t, c.Status().Update(c.t.Context(), now))
}

// assigned are the nodes of a job, each as often as it has members there.
func assigned(job *aiplatformv1alpha1.AIJob) []string {
	var nodes []string
	for _, on := range job.Status.Assignments {
		nodes = append(nodes, slices.Repeat([]string{on.NodeName}, int(on.Members))...)
	}
	return nodes
}

func eventually(t *testing.T, happened func() bool, what string, args ...any) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 25*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return happened(), nil })
	require.NoError(t, err, "waited for %s", fmt.Sprintf(what, args...))
}

// jobs play the controller of AIJobs, as far as admission goes. It can be held up.
type jobs struct {
	client.Client
	decider queueing.Decider
	mutex   sync.Mutex // held while the controller is to do nothing
}

func (j *jobs) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	var job aiplatformv1alpha1.AIJob
	if err := j.Get(ctx, request.NamespacedName, &job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	decision, ok := j.decider.Decision(job.UID)
	if !ok {
		return ctrl.Result{}, nil
	}
	next := job.DeepCopy()
	switch {
	case decision.Admitted != nil:
		next.Status.Phase, next.Status.Assignments = aiplatformv1alpha1.AIJobScheduled, nil
		next.Status.Reason = ""
		members := map[string]int32{}
		for _, name := range decision.Admitted.Nodes {
			members[name]++
		}
		for name, n := range members {
			next.Status.Assignments = append(next.Status.Assignments, aiplatformv1alpha1.NodeAssignment{NodeName: name, Members: n})
		}
	case decision.Preempted != nil:
		next.Status.Phase, next.Status.Assignments = aiplatformv1alpha1.AIJobQueued, nil
		next.Status.PreemptionCount++
		next.Status.Message = fmt.Sprintf("preempted by %s of priority %d", decision.Preempted.Name, decision.Preempted.Priority)
	case decision.Wait != nil:
		next.Status.Phase, next.Status.Reason = aiplatformv1alpha1.AIJobQueued, decision.Wait.Reason
		next.Status.QueuePosition = int32(decision.Wait.Position)
	default:
		return ctrl.Result{}, nil
	}
	err := j.Status().Patch(ctx, next, client.MergeFromWithOptions(&job, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, err
}

// source of AIJobs: the smallest that does.
func aiJobs() queueing.Source {
	return queueing.Source{
		Kind: "AIJob", Object: &aiplatformv1alpha1.AIJob{},
		Job: func(object client.Object) (scheduler.Job, queueing.State) {
			j := object.(*aiplatformv1alpha1.AIJob)
			selector := map[string]string{}
			for key, value := range j.Spec.NodeSelector {
				selector[key] = string(value)
			}
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Resources: *j.Spec.Resources}}}
			is := scheduler.Job{
				Queue: j.Spec.QueueName, Cluster: j.Spec.ClusterName, Priority: ptr.Deref(j.Spec.Priority, 50), Preemptible: true,
				QueuedAt: j.CreationTimestamp.Time, AdmittedAt: j.CreationTimestamp.Time,
				Groups: []scheduler.Group{{Count: int(j.Spec.Gang.MinMembers), Requests: queueing.RequestsOf(spec), NodeSelector: selector}},
			}
			switch j.Status.Phase {
			case aiplatformv1alpha1.AIJobPending, aiplatformv1alpha1.AIJobQueued:
				return is, queueing.Waiting
			case aiplatformv1alpha1.AIJobScheduled:
				is.Placement = assigned(j)
				return is, queueing.Holding
			}
			return is, queueing.Uninvolved
		},
	}
}

// manager that runs.
type manager struct {
	*queueing.Service
	jobs   *jobs
	cycles atomic.Int64
	stop   func()
}

// Cycle implements admission.Metrics.
func (m *manager) Cycle(time.Duration, int, int, int) { m.cycles.Add(1) }

// start a manager. With idle its controller of jobs does nothing until it is let go.
func (c *cluster) start(idle bool) *manager {
	c.t.Helper()
	mgr := managers.New(c.t, server.Config(c.t), scheme, cache.Options{})
	m := &manager{}
	m.Service = queueing.New(mgr, m)
	m.Add(aiJobs())
	m.jobs = &jobs{Client: mgr.GetClient(), decider: m.Service}
	if idle {
		m.jobs.mutex.Lock()
	}
	require.NoError(c.t, ctrl.NewControllerManagedBy(mgr).Named("jobs").
		For(&aiplatformv1alpha1.AIJob{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(m.Changes("AIJob")).Complete(m.jobs))
	require.NoError(c.t, mgr.Add(m.Service))
	stop := mgr.Run()
	m.stop = sync.OnceFunc(func() {
		if m.jobs.mutex.TryLock() {
			m.jobs.mutex.Unlock()
		} else if idle {
			m.jobs.mutex.Unlock()
		}
		stop()
	})
	c.t.Cleanup(m.stop)
	return m
}
