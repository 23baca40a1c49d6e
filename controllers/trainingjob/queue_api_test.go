package trainingjob

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// newAdmittingCluster has a manager that admits jobs.
func newAdmittingCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.admits = true
	return c
}

// roomFor is a simulated node of the test with so many GPUs.
func (c *cluster) roomFor(name string, gpus string) *corev1.Node {
	c.t.Helper()
	is := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + name, Labels: map[string]string{"of": c.namespace}}}
	require.NoError(c.t, c.Create(c.t.Context(), is))
	c.t.Cleanup(func() { _ = c.Delete(context.Background(), is) })
	is.Status = corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			"nvidia.com/gpu": resource.MustParse(gpus), "cpu": resource.MustParse("64"), "memory": resource.MustParse("64Gi"),
			"pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("1Ti"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	require.NoError(c.t, c.Status().Update(c.t.Context(), is))
	is.Spec.Taints = nil // which the API server sets until a node is found ready
	require.NoError(c.t, c.Update(c.t.Context(), is))
	return is
}

func (c *cluster) queue(edit func(*aiplatformv1alpha1.AIJobQueueSpec)) {
	c.t.Helper()
	q := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	edit(&q.Spec)
	require.NoError(c.t, c.Create(c.t.Context(), q))
	c.t.Cleanup(func() { _ = c.Delete(context.Background(), q) })
}

// queued is a job of two workers with a GPU each in the queue of the test.
func (c *cluster) queued(name string) *builders.TrainingJobBuilder {
	return builders.TrainingJob(name).Workers(2).GPUs(1).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{QueueName: c.namespace, NodeSelector: map[string]string{"of": c.namespace}}
	})
}

// waits is a condition for await.
func waits(reason string) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		admitted := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionAdmitted)
		return admitted != nil && admitted.Status == metav1.ConditionFalse && admitted.Reason == reason
	}
}

func (c *cluster) hasWorkers(job *mlv1.TrainingJob) bool {
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: build.WorkersName(job)}, &batchv1.Job{})
	require.NoError(c.t, client.IgnoreNotFound(err))
	return err == nil
}

// nodesOf are the nodes that pods of a Job may have.
func nodesOf(workers *batchv1.Job) []string {
	var nodes []string
	for _, term := range workers.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		nodes = append(nodes, term.MatchFields[0].Values...)
	}
	return nodes
}

func TestAPIAJobWaitsForItsQueueAndForRoom(t *testing.T) {
	c := newAdmittingCluster(t)
	m := c.start(nil)
	first := c.submit(c.queued("first"))
	c.await(first, "waiting for its queue", waits(reasons.QueueNotFound))
	c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	c.await(first, "waiting for room", waits(reasons.InsufficientCapacity))
	assert.False(t, c.hasWorkers(first))

	a, b := c.roomFor("a", "1"), c.roomFor("b", "1")

	workers := c.workers(first, 0)
	assert.Equal(t, []string{a.Name, b.Name}, nodesOf(workers))
	second := c.submit(c.queued("second"))
	c.await(second, "waiting for room", waits(reasons.InsufficientCapacity))
	pods := c.startPods(workers)
	c.run(pods...)
	c.await(first, "running", state(mlv1.StateRunning))
	assert.False(t, c.hasWorkers(second))
	before := len(m.Written())
	m.lookAgain(first, 2)
	m.lookAgain(second, 2)
	assert.Len(t, m.Written(), before, "a second look writes nothing")

	c.end(0, "", pods...)

	c.await(first, "completed", state(mlv1.StateCompleted))
	c.workers(second, 0)
}

// TrainingJobs count for the limits of the user who created them.
func TestAPIAUserHoldsNoMoreThanUsersMay(t *testing.T) {
	c := newAdmittingCluster(t)
	c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.UserLimits = &aiplatformv1alpha1.TenantLimits{ResourceLimits: aiplatformv1alpha1.ResourceLimits{GPUs: ptr.To[int32](2)}}
	})
	c.roomFor("a", "8")
	c.start(nil)
	first := c.submit(c.queued("first").Annotations(ofUser("alice")))
	c.workers(first, 0)
	second := c.submit(c.queued("second").Annotations(ofUser("alice")))
	c.await(second, "over the limit of a user", waits(reasons.QuotaReached))

	others := c.submit(c.queued("others").Annotations(ofUser("bob")))
	c.workers(others, 0)
	nobodys := c.submit(c.queued("nobodys"))
	c.workers(nobodys, 0)
	assert.False(t, c.hasWorkers(second))

	c.suspend(c.await(first, "starting", state(mlv1.StateInitializing)), true)

	c.workers(second, 0)
}

// A job that is suspended gives its place to the next, and waits for another when it is resumed.
func TestAPIASuspendedJobGivesItsPlaceToTheNext(t *testing.T) {
	c := newAdmittingCluster(t)
	c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.Quotas = &aiplatformv1alpha1.ResourceLimits{GPUs: ptr.To[int32](2)}
	})
	c.roomFor("a", "8")
	c.start(nil)
	first := c.submit(c.queued("first"))
	c.workers(first, 0)
	second := c.submit(c.queued("second"))
	c.await(second, "over the quota", waits(reasons.QuotaReached))

	c.suspend(c.await(first, "starting", state(mlv1.StateInitializing)), true)

	c.workers(second, 0)
	first = c.await(first, "suspended", state(mlv1.StateSuspended))
	c.suspend(first, false)
	c.await(first, "over the quota", waits(reasons.QuotaReached))
	assert.False(t, c.hasWorkers(first))
}

// The value of the PriorityClass is the priority in the queue.
func TestAPIAJobOfHigherPriorityGoesFirst(t *testing.T) {
	c := newAdmittingCluster(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Value: 90}
	require.NoError(t, c.Create(t.Context(), class))
	c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	c.start(nil)
	low := c.submit(c.queued("low"))
	c.await(low, "waiting for room", waits(reasons.InsufficientCapacity))
	high := c.submit(c.queued("high").Spec(func(s *mlv1.TrainingJobSpec) { s.Scheduling.Priority = class.Name }))
	c.await(high, "waiting for room", waits(reasons.InsufficientCapacity))

	c.roomFor("a", "2")

	c.workers(high, 0)
	assert.False(t, c.hasWorkers(low))
}

// A manager that crashes at any write of an admission loses no job and admits none twice.
func TestAPIAnAdmissionSurvivesACrashOfTheManager(t *testing.T) {
	for name, at := range map[string]crash.Cut{
		"before it is queued":         {Method: "PATCH", Path: "/first/status"},
		"after it is queued":          {Method: "PATCH", Path: "/first/status", Sent: true},
		"before the place is told":    {Method: "PATCH", Path: "/first/status", Skip: 1},
		"after the place is told":     {Method: "PATCH", Path: "/first/status", Skip: 1, Sent: true},
		"before the workers are made": {Method: "POST", Path: "/jobs"},
		"after the workers are made":  {Method: "POST", Path: "/jobs", Sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newAdmittingCluster(t)
			c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
			c.roomFor("a", "3")
			m := c.start(&at)
			first := c.submit(c.queued("first"))
			eventually(t, "the crash", m.Crashed)
			m.stop()
			second := c.submit(c.queued("second"))

			c.start(nil)

			admitted := 0
			eventually(t, "one job to have its place and the other to wait", func() bool {
				admitted = 0
				waiting := 0
				for _, job := range []*mlv1.TrainingJob{first, second} {
					var now mlv1.TrainingJob
					require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), &now))
					if build.IsAdmitted(&now.Status) {
						admitted++
					}
					if waits(reasons.InsufficientCapacity)(&now) {
						waiting++
					}
				}
				return admitted == 1 && waiting == 1
			})
		})
	}
}

// A job whose pods find no room on the assigned nodes is evicted, and gets others.
func TestAPIAPlaceThatIsTakenIsGivenBack(t *testing.T) {
	c := newAdmittingCluster(t)
	c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	c.roomFor("a", "2")
	c.roomFor("b", "4")
	c.start(nil)
	job := c.submit(c.queued("first"))
	workers := c.workers(job, 0)
	require.Equal(t, []string{c.namespace + "-a"}, nodesOf(workers), "it fits best")
	for _, pod := range c.startPods(workers) {
		c.become(pod, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
		}}})
	}
	c.await(job, "giving its place back", func(job *mlv1.TrainingJob) bool {
		return job.Status.Admission.Releasing != "" || job.Status.State == mlv1.StateSuspended
	})
	c.gone(workers.DeepCopy())
	assert.Equal(t, []string{c.namespace + "-b"}, nodesOf(c.workers(job, 0)))
}

// A job is admitted where its volume is, though it would fit better elsewhere.
func TestAPIAJobGoesWhereItsVolumeIs(t *testing.T) {
	c := newAdmittingCluster(t)
	c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	c.roomFor("a", "2")
	there := c.roomFor("b", "4")
	there.Labels["zone"] = "z"
	require.NoError(t, c.Update(t.Context(), there))
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
			NodeAffinity:           &corev1.VolumeNodeAffinity{Required: inZone("z")},
		},
	}
	require.NoError(t, c.Create(t.Context(), volume))
	t.Cleanup(func() { _ = c.Delete(context.Background(), volume) })
	require.NoError(t, c.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: c.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, VolumeName: volume.Name, StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
		},
	}))
	c.start(nil)

	workers := c.workers(c.submit(c.queued("bert").Claim("shared")), 0)

	assert.Equal(t, []string{there.Name}, nodesOf(workers))
}

// A job whose pods cannot start does not keep its place from the next.
func TestAPIAPlaceOfNoUseGoesToTheNextJob(t *testing.T) {
	c := newAdmittingCluster(t)
	c.queue(func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	c.roomFor("a", "2")
	c.start(nil)
	first := c.submit(c.queued("first"))
	workers := c.workers(first, 0)
	second := c.submit(c.queued("second"))
	c.await(second, "waiting for room", waits(reasons.InsufficientCapacity))
	for _, pod := range c.startPods(workers) {
		c.become(pod, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: build.WorkerContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName", Message: "couldn't parse"}},
		}}})
	}
	c.gone(workers)

	c.workers(second, 0)

	evicted := c.await(first, "suspended", state(mlv1.StateSuspended))
	assert.EqualValues(t, 1, evicted.Status.Admission.FailedStarts)
}

// A job of higher priority takes the place of one that keeps checkpoints, which waits again and goes on afterwards.
func TestAPIAJobLosesItsPlaceToOneOfHigherPriority(t *testing.T) {
	c := newAdmittingCluster(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Value: 90}
	require.NoError(t, c.Create(t.Context(), class))
	c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.PreemptionPolicy = aiplatformv1alpha1.PreemptLowerPriority
	})
	c.roomFor("a", "2")
	c.start(nil)
	low := c.submit(c.queued("low").Checkpoints())
	first := c.workers(low, 0)
	c.run(c.startPods(first)...)
	c.await(low, "running", state(mlv1.StateRunning))

	high := c.submit(c.queued("high").Spec(func(s *mlv1.TrainingJobSpec) { s.Scheduling.Priority = class.Name }))

	c.gone(first.DeepCopy())
	assert.False(t, c.hasWorkers(high), "the workers still save their checkpoint")
	stopping := c.await(low, "giving its place back", func(job *mlv1.TrainingJob) bool { return job.Status.Admission.Releasing != "" })
	assert.Contains(t, stopping.Status.Admission.Releasing, "high (priority 90)")
	workers := c.workers(high, 0)
	waiting := c.await(low, "suspended", state(mlv1.StateSuspended))
	assert.Equal(t, reasons.Preempted, waiting.Status.Reason)
	assert.EqualValues(t, 1, waiting.Status.Admission.PreemptionCount)

	c.end(0, "", c.startPods(workers)...)
	c.await(high, "completed", state(mlv1.StateCompleted))
	second := c.workers(low, 0)
	assert.NotEqual(t, first.UID, second.UID)
	c.run(c.startPods(second)...)
	again := c.await(low, "running again", state(mlv1.StateRunning))
	assert.Zero(t, again.Status.RestartCount, "a preemption is no restart")
}
