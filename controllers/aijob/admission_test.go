package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// gpuNode makes a node with GPUs, which only jobs of this test can use.
func (c *cluster) gpuNode(name string, gpus string) string {
	c.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + name, Labels: map[string]string{"test": c.namespace}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("20"),
				"nvidia.com/gpu": resource.MustParse(gpus),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	node.Status.Capacity = node.Status.Allocatable
	status := node.Status
	require.NoError(c.t, c.Create(c.t.Context(), node))
	c.t.Cleanup(func() {
		_ = c.Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}})
	})
	// The API server taints a new node as not ready, until its kubelet says that it is.
	node.Spec.Taints = nil
	require.NoError(c.t, c.Update(c.t.Context(), node))
	node.Status = status
	require.NoError(c.t, c.Status().Update(c.t.Context(), node))
	return node.Name
}

// here has a job run on this test's nodes only.
func (c *cluster) here(b *builders.AIJobBuilder) *builders.AIJobBuilder {
	return b.Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"test": aiplatformv1alpha1.LabelValue(c.namespace)}
	})
}

// The scenario of the platform's design: a gang that needs 4 GPUs while 2 are free waits and says so, and all its pods are
// made at once when 4 are free.
func TestAPIAGangWaitsForAllItsGPUs(t *testing.T) {
	c := newCluster(t)
	c.real = true
	node := c.gpuNode("a", "4")
	c.start(nil)
	first := c.submit(c.here(builders.AIJob("first").GPUs(2)))
	c.reachPhase(first, aiplatformv1alpha1.AIJobRunning, 0)
	assert.Equal(t, node, c.pods()[0].Spec.NodeName)

	four := c.submit(c.here(builders.AIJob("four").Gang(4).GPUs(1)))
	c.reach(four, "waiting", func(s *aiplatformv1alpha1.AIJobStatus) bool { return short(*s) == "Queued InsufficientCapacity" })
	t.Log(four.Status.Message)
	assert.Regexp(t, `\b4\b.*\b2\b`, four.Status.Message, "it says what it needs and what there is")
	assert.Equal(t, int32(1), four.Status.QueuePosition)
	assert.Len(t, c.pods(), 1, "no pod of the gang is made before all can be")

	c.exit("first-0-0", 0, "")
	c.reachPhase(four, aiplatformv1alpha1.AIJobRunning, 0)
	assert.Equal(t, []aiplatformv1alpha1.NodeAssignment{{NodeName: node, Members: 4}}, four.Status.Assignments)
	var made []metav1.Time
	for _, pod := range c.pods() {
		if pod.Labels[aiplatformv1alpha1.LabelAIJob] == "four" {
			made = append(made, pod.CreationTimestamp)
		}
	}
	require.Len(t, made, 4)
	assert.LessOrEqual(t, made[3].Sub(made[0].Time).Abs(), 5*time.Second, "all at once")
}

func TestAPIAJobOfHigherPriorityTakesThePlace(t *testing.T) {
	c := newCluster(t)
	c.real = true
	c.gpuNode("a", "4")
	queue := &aiplatformv1alpha1.AIJobQueue{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		Spec:       aiplatformv1alpha1.AIJobQueueSpec{PreemptionPolicy: aiplatformv1alpha1.PreemptLowerPriority},
	}
	require.NoError(t, c.Create(t.Context(), queue))
	m := c.start(nil)
	low := c.submit(c.here(builders.AIJob("low").GPUs(4).Priority(10).Queue(queue.Name)))
	c.reachPhase(low, aiplatformv1alpha1.AIJobRunning, 0)
	kept := c.submit(c.here(builders.AIJob("kept").GPUs(4).Priority(10).Queue(queue.Name)))
	c.reachPhase(kept, aiplatformv1alpha1.AIJobQueued, 0)

	urgent := c.submit(c.here(builders.AIJob("urgent").GPUs(4).Priority(90).Queue(queue.Name)))
	c.reach(low, "preempted", func(s *aiplatformv1alpha1.AIJobStatus) bool { return s.PreemptionCount == 1 })
	c.reachPhase(urgent, aiplatformv1alpha1.AIJobRunning, 0)
	require.NoError(t, c.Get(t.Context(), keyOf(low), low))
	assert.Equal(t, aiplatformv1alpha1.AIJobQueued, low.Status.Phase)
	assert.Zero(t, low.Status.RetryCount)
	c.tells(m, "Warning Preempted")

	c.exit("urgent-0-0", 0, "")
	c.until("both others having had their turn", func() bool {
		for _, pod := range c.pods() {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				c.exit(pod.Name, 0, "")
			}
		}
		require.NoError(t, c.Get(t.Context(), keyOf(low), low))
		require.NoError(t, c.Get(t.Context(), keyOf(kept), kept))
		return low.Status.Phase == aiplatformv1alpha1.AIJobSucceeded && kept.Status.Phase == aiplatformv1alpha1.AIJobSucceeded
	})
	assert.Contains(t, c.created, "low-0-1")
}

func TestAPIAJobOfAQueueThatIsMissingGoesOnWhenItAppears(t *testing.T) {
	c := newCluster(t)
	c.real = true
	c.gpuNode("a", "4")
	m := c.start(nil)
	run := c.submit(c.here(builders.AIJob("early").Queue(c.namespace)))
	c.reach(run, "waiting for its queue", func(s *aiplatformv1alpha1.AIJobStatus) bool { return short(*s) == "Queued QueueNotFound" })
	assert.Equal(t, "False QueueNotFound", conditions(run.Status)["Ready"])
	t.Log(run.Status.Message)
	c.quiet(m)
	c.tells(m, "QueueNotFound")

	require.NoError(t, c.Create(t.Context(), &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}))
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	assert.Equal(t, "True Running", conditions(run.Status)["Ready"])

	suspended := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	require.NoError(t, c.Patch(t.Context(), suspended, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":true}}`))))
	assert.Equal(t, ptr.To(true), suspended.Spec.Suspend)
	late := c.submit(c.here(builders.AIJob("late").Queue(c.namespace)))
	c.reach(late, "waiting", func(s *aiplatformv1alpha1.AIJobStatus) bool { return short(*s) == "Queued QueueSuspended" })
}
