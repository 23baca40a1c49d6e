package queueing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const (
	queued    = aiplatformv1alpha1.AIJobQueued
	scheduled = aiplatformv1alpha1.AIJobScheduled
)

func TestAGangWaitsUntilAllOfItFits(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", 2), c.node("b", 2)
	foreign := c.pod("foreign", b, 2)
	c.start(false)

	gang := c.submit("gang", members(4))

	waiting := c.awaitWait(gang, reasons.InsufficientCapacity)
	assert.EqualValues(t, 1, waiting.Status.QueuePosition)
	assert.Empty(t, waiting.Status.Assignments, "not a part of the gang has a place")

	require.NoError(t, c.Delete(t.Context(), foreign))
	assert.ElementsMatch(t, []string{a.Name, a.Name, b.Name, b.Name}, assigned(c.await(gang, scheduled)))
}

func TestPodsOfOthersTakeRoom(t *testing.T) {
	c := newCluster(t)
	node := c.node("a", 2)
	c.start(false)
	first := c.await(c.submit("first"), scheduled)
	// The pod of the job itself takes no further room.
	own := c.pod("own", node, 1)
	require.NoError(t, c.Delete(t.Context(), own))
	own = own.DeepCopy()
	own.ResourceVersion, own.UID = "", ""
	own.Labels = map[string]string{aiplatformv1alpha1.LabelAIJob: first.Name}
	own.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(first, aiplatformv1alpha1.GroupVersion.WithKind("AIJob"))}
	require.NoError(t, c.Create(t.Context(), own))
	second := c.submit("second")
	c.await(second, scheduled)
	third := c.submit("third")
	c.awaitWait(third, reasons.InsufficientCapacity)

	c.end(second)
	c.await(third, scheduled)
	c.end(third)
	c.pod("foreign", node, 1)
	c.awaitWait(c.submit("fourth"), reasons.InsufficientCapacity)
}

func TestANodeThatGoesGetsNoJob(t *testing.T) {
	going := map[string]func(c *cluster, node *corev1.Node){
		"cordoned": func(c *cluster, node *corev1.Node) {
			node.Spec.Unschedulable = true
			require.NoError(t, c.Update(t.Context(), node))
		},
		"about to be taken back": func(c *cluster, node *corev1.Node) {
			node.Annotations = map[string]string{spotv1alpha1.AnnotationPreemptionNotice: time.Now().Format(time.RFC3339)}
			require.NoError(t, c.Update(t.Context(), node))
		},
		"not ready": func(c *cluster, node *corev1.Node) {
			node.Status.Conditions[0].Status = corev1.ConditionFalse
			require.NoError(t, c.Status().Update(t.Context(), node))
		},
		"deleted": func(c *cluster, node *corev1.Node) { require.NoError(t, c.Delete(t.Context(), node)) },
	}
	for name, goes := range going {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			node := c.node("a", 4)
			c.start(false)
			c.await(c.submit("first"), scheduled)

			goes(c, node)

			c.awaitWait(c.submit("second"), reasons.InsufficientCapacity)
			c.node("b", 4)
			assert.Equal(t, []string{c.namespace + "-b"}, assigned(c.await(c.submit("third"), scheduled)))
		})
	}
}

func TestAQuotaHoldsWhenItShrinks(t *testing.T) {
	c := newCluster(t)
	c.node("a", 8)
	q := c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.Quotas = &aiplatformv1alpha1.ResourceLimits{GPUs: ptr.To[int32](2)}
	})
	c.start(false)
	first, second := c.submit("first", queue(q.Name)), c.submit("second", queue(q.Name))
	c.await(first, scheduled)
	c.await(second, scheduled)
	third := c.submit("third", queue(q.Name))
	c.awaitWait(third, reasons.QuotaReached)

	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(q), q))
	q.Spec.Quotas.GPUs = ptr.To[int32](1)
	require.NoError(t, c.Update(t.Context(), q))
	c.end(first)
	assert.Equal(t, scheduled, c.now(second).Status.Phase, "what runs stays")
	c.awaitWait(c.submit("fourth", queue(q.Name), priority(10)), reasons.QuotaReached)
	assert.Equal(t, queued, c.now(third).Status.Phase, "one runs, which is all that the quota allows now")

	c.end(second)
	c.await(third, scheduled)
}

func TestAQueueThatDoesNotExistIsWaitedFor(t *testing.T) {
	c := newCluster(t)
	c.node("a", 1)
	c.start(false)
	job := c.submit("job", queue(c.namespace))
	c.awaitWait(job, reasons.QueueNotFound)
	c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) { s.Suspend = ptr.To(true) })
	c.awaitWait(job, reasons.QueueSuspended)
}

func TestAQueueSelectsNamespacesByTheirLabels(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	q := c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": c.namespace}}
		s.MaxPriority = ptr.To[int32](60)
	})
	c.start(false)
	job, urgent := c.submit("job", queue(q.Name)), c.submit("urgent", queue(q.Name), priority(61))
	c.awaitWait(job, reasons.NamespaceNotSelected)

	label := fmt.Appendf(nil, `{"metadata":{"labels":{"team":%q}}}`, c.namespace)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	require.NoError(t, c.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, label)))
	c.await(job, scheduled)
	c.awaitWait(urgent, reasons.PriorityTooHigh)
}

// What was decided and is in no status yet is not given to another, however long the controller takes.
func TestADecisionIsReservedUntilItIsWritten(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	m := c.start(true)
	first := c.submit("first", members(2))
	eventually(t, func() bool { d, ok := m.Decision(first.UID); return ok && d.Admitted != nil }, "a decision")
	second := c.submit("second")
	eventually(t, func() bool { d, ok := m.Decision(second.UID); return ok && d.Wait != nil }, "the second to wait")

	m.jobs.mutex.Unlock()
	c.await(first, scheduled)
	c.awaitWait(second, reasons.InsufficientCapacity)
	m.jobs.mutex.Lock()
}

// A manager that ends between its decision and the write loses nothing and gives nothing twice.
func TestANewManagerDecidesAgainUponWhatWasNotWritten(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	m := c.start(false)
	holds := c.submit("holds")
	c.await(holds, scheduled)
	m.jobs.mutex.Lock()
	first := c.submit("first")
	eventually(t, func() bool { d, ok := m.Decision(first.UID); return ok && d.Admitted != nil }, "a decision")
	m.jobs.mutex.Unlock()
	m.stop()
	var jobs aiplatformv1alpha1.AIJobList
	for i := range 5 {
		c.submit(fmt.Sprintf("later-%d", i))
	}

	c.start(false)

	running := func() (n int) {
		require.NoError(t, c.List(t.Context(), &jobs, client.InNamespace(c.namespace)))
		for i := range jobs.Items {
			n += len(assigned(&jobs.Items[i]))
		}
		return n
	}
	waiting := func() (n int) {
		require.NoError(t, c.List(t.Context(), &jobs, client.InNamespace(c.namespace)))
		for i := range jobs.Items {
			if jobs.Items[i].Status.Phase == queued {
				n++
			}
		}
		return n
	}
	eventually(t, func() bool { return waiting() == 5 }, "all that do not fit to say so")
	assert.Equal(t, 2, running(), "two GPUs, two jobs")
	assert.Equal(t, scheduled, c.now(holds).Status.Phase)
}

// In a burst with jobs that end and are put back no GPU is ever given twice.
func TestNoGPUIsGivenTwiceInABurst(t *testing.T) {
	c := newCluster(t)
	c.node("a", 3)
	c.node("b", 2)
	c.start(false)
	const count = 30
	var all []*aiplatformv1alpha1.AIJob
	for i := range count {
		all = append(all, c.submit(fmt.Sprintf("job-%d", i), members(int32(1+i%3))))
	}
	ended := map[string]bool{}
	eventually(t, func() bool {
		var jobs aiplatformv1alpha1.AIJobList
		require.NoError(t, c.List(t.Context(), &jobs, client.InNamespace(c.namespace)))
		used := map[string]int{}
		var holding []*aiplatformv1alpha1.AIJob
		for i := range jobs.Items {
			if job := &jobs.Items[i]; job.Status.Phase == scheduled {
				holding = append(holding, job)
				for _, name := range assigned(job) {
					used[name]++
				}
				require.Len(t, assigned(job), int(job.Spec.Gang.MinMembers), "a whole gang or none of it")
			}
		}
		require.LessOrEqual(t, used[c.namespace+"-a"], 3)
		require.LessOrEqual(t, used[c.namespace+"-b"], 2)
		for _, job := range holding {
			c.end(job)
			ended[job.Name] = true
		}
		return len(ended) == len(all)
	}, "all jobs to run")
}

func TestPreemptionByPriority(t *testing.T) {
	c := newCluster(t)
	c.node("a", 2)
	q := c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.PreemptionPolicy = aiplatformv1alpha1.PreemptLowerPriority
	})
	c.start(false)
	low, equal := c.submit("low", queue(q.Name), priority(10)), c.submit("equal", queue(q.Name), priority(90))
	c.await(low, scheduled)
	c.await(equal, scheduled)

	high := c.submit("high", queue(q.Name), priority(90))

	c.await(high, scheduled)
	victim := c.await(low, queued)
	assert.EqualValues(t, 1, victim.Status.PreemptionCount)
	assert.Equal(t, scheduled, c.now(equal).Status.Phase, "one of equal priority keeps its place")
	c.end(high)
	assert.EqualValues(t, 1, c.await(low, scheduled).Status.PreemptionCount)
}

// A job that comes alone is decided upon at once.
func TestAJobThatComesAloneDoesNotWait(t *testing.T) {
	c := newCluster(t)
	c.node("a", 100)
	m := c.start(false)
	c.await(c.submit("warm-up"), scheduled)
	var took []time.Duration
	for i := range 9 {
		start := time.Now()
		job := c.submit(fmt.Sprintf("job-%d", i))
		eventually(t, func() bool {
			d, ok := m.Decision(job.UID)
			return ok && d.Wait == nil
		}, "a decision")
		took = append(took, time.Since(start))
		c.await(job, scheduled)
	}
	t.Log("decided after", took)
	quick := 0
	for _, d := range took {
		if d < 100*time.Millisecond {
			quick++
		}
	}
	assert.Greater(t, quick, len(took)/2)
}

// At rest nothing is decided, and a write of a status that changes nothing of importance leads to no cycle.
func TestNoCycleAtRest(t *testing.T) {
	c := newCluster(t)
	node := c.node("a", 1)
	m := c.start(false)
	job := c.await(c.submit("job"), scheduled)
	before := m.cycles.Load()
	for i := range 5 {
		job.Status.Message = fmt.Sprint("said ", i)
		require.NoError(t, c.Status().Update(t.Context(), job))
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		node.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		require.NoError(t, c.Status().Update(t.Context(), node))
	}
	other := c.submit("other") // does not fit, and is decided upon after all of that was seen
	c.awaitWait(other, reasons.InsufficientCapacity)
	assert.LessOrEqual(t, m.cycles.Load()-before, int64(3))
}

func TestFiguresOfQueuesAndClusters(t *testing.T) {
	c := newCluster(t)
	node := c.node("a", 4)
	q := c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	m := c.start(false)
	c.await(c.submit("two", queue(q.Name), members(2)), scheduled)
	big := c.submit("big", queue(q.Name), members(4))
	c.awaitWait(big, reasons.InsufficientCapacity)
	c.pod("foreign", node, 1)

	figures, known := m.Queue(q.Name)
	assert.True(t, known)
	assert.Equal(t, 1, figures.Depth)
	assert.Equal(t, 1, figures.Running)
	assert.EqualValues(t, 2, figures.Usage.GPUs)
	assert.WithinDuration(t, big.CreationTimestamp.Time, figures.Oldest, time.Second)
	assert.Equal(t, 1, m.Depths()[q.Name])
	eventually(t, func() bool {
		cluster, known := m.Cluster("any", map[string]string{"zone": c.zone})
		return known && cluster.Nodes == 1 && cluster.Ready == 1 && cluster.GPUs == 4 && cluster.FreeGPUs == 1
	}, "the figures of the nodes")
}

// Pods are watched once there is something to admit, and a queue is enough.
func TestNothingIsKnownBeforeThereIsSomethingToAdmit(t *testing.T) {
	c := newCluster(t)
	var jobs aiplatformv1alpha1.AIJobList
	require.NoError(t, c.List(t.Context(), &jobs))
	for i := range jobs.Items { // of other tests
		require.NoError(t, c.Delete(t.Context(), &jobs.Items[i]))
	}
	m := c.start(false)
	_, known := m.Queue("any")
	assert.False(t, known)
	c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.Quotas = &aiplatformv1alpha1.ResourceLimits{CPU: resource.NewQuantity(1, resource.DecimalSI)}
	})
	eventually(t, func() bool { _, known := m.Queue("any"); return known }, "the figures")
}
