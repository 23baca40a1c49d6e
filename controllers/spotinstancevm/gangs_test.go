package spotinstancevm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// queued is a TrainingJob of so many workers, which need so many cores each, that has waited in its queue for so long.
func queued(name string, workers int, cpu string, ago time.Duration) func(*scene) {
	return func(s *scene) {
		var pods []*corev1.Pod
		for index := range workers {
			pods = append(pods, aPod(fmt.Sprintf("%s-%d", name, index), needs(cpu), func(pod *corev1.Pod) {
				pod.Labels = map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4", mlv1.LabelTrainingJob: name}
				pod.CreationTimestamp = metav1.NewTime(noon.Add(-ago))
			}))
		}
		s.queued = append(s.queued, gangOf(pods))
	}
}

func TestRoomForJobsInQueues(t *testing.T) {
	running := spotv1alpha1.InstanceRunning
	free := func(name string, ago time.Duration) func(*scene) {
		return has(name, running, isReady(ago), remembers(memo{revoked: true, emptySince: noon.Add(-time.Minute)}))
	}
	none := func(name string) func(*scene) {
		return has(name, running, isReady(time.Hour), runs(name), remembers(memo{revoked: true}))
	}
	const ready = "True Ready"
	tests := map[string]struct {
		scene    *scene
		actions  []string
		capacity string
		message  string
	}{
		"an instance for each pod": {
			scene: aScene(queued("bert", 2, "3", time.Minute)), actions: []string{"create t4-new1", "create t4-new3"}, capacity: "Unknown Provisioning",
		},
		"pods share instances": {
			scene: aScene(queued("bert", 4, "1500m", time.Minute)), actions: []string{"create t4-new1", "create t4-new3"}, capacity: "Unknown Provisioning",
		},
		"the room that there is counts": {
			scene: aScene(queued("bert", 2, "3", time.Minute), free("t4-x", time.Hour)), actions: []string{"create t4-new1"}, capacity: "Unknown Provisioning",
		},
		"not all of them are available": {
			scene: aScene(queued("bert", 4, "3", time.Minute)), capacity: "False MaxInstancesReached",
			message: "TrainingJob/bert waits in its queue for room for all its pods, which takes 4 further instances, more than spec.maxInstances (3) " +
				"leaves: raise it, or give the job fewer or smaller workers",
		},
		"not all of them are available now": {
			scene: aScene(queued("bert", 3, "3", time.Minute), none("t4-x")), capacity: "False MaxInstancesReached",
			message: "raise it, or wait until a job ends",
		},
		"a smaller job is not held up by that": {
			scene: aScene(queued("bert", 4, "3", time.Hour), queued("small", 1, "3", time.Minute)), actions: []string{"create t4-new1"},
			capacity: "False MaxInstancesReached",
		},
		"the first come first": {
			scene:   aScene(queued("first", 3, "3", time.Hour), queued("second", 1, "3", time.Minute)),
			actions: []string{"create t4-new1", "create t4-new3", "create t4-new5"}, capacity: "False MaxInstancesReached", message: "TrainingJob/second",
		},
		"pods that exist come before": {
			scene: aScene(queued("bert", 3, "3", time.Minute), waiting("0")), actions: []string{"create t4-new1"}, capacity: "False MaxInstancesReached",
		},
		"larger than an instance": {
			scene: aScene(queued("bert", 2, "64", time.Minute)), capacity: "False PodDoesNotFit", message: "pod bert-0 requests more",
		},
		"instances that are on their way": {
			scene: aScene(queued("bert", 2, "3", time.Minute), has("t4-x", running), has("t4-y", running)), capacity: "True Provisioning",
		},
		"the queue is given time to see a new node": {
			scene: aScene(queued("bert", 1, "3", time.Minute), free("t4-x", time.Second)), capacity: ready,
		},
		"room that the queue does not take": {
			scene: aScene(queued("bert", 1, "3", time.Hour), free("t4-x", time.Hour)), capacity: "False PodDoesNotFit", message: "pod bert-0 is not scheduled although",
		},
		"an instance that is kept free for deletion": {
			scene:   aScene(queued("bert", 1, "3", time.Second), has("t4-x", running, isNode(idle), isReady(time.Hour), remembers(memo{revoked: true}))),
			actions: []string{"untaint t4-x"}, capacity: ready,
		},
		"room that has just become free": {
			scene: aScene(queued("bert", 1, "3", time.Hour), has("t4-x", running, isReady(time.Hour), remembers(memo{revoked: true}))), capacity: ready,
		},
		"room that a job has that asks for no instances": {
			scene:   aScene(queued("bert", 1, "3", time.Hour), has("t4-x", running, isReady(time.Hour), uses("2", true), remembers(memo{revoked: true}))),
			actions: []string{"create t4-new1"}, capacity: "Unknown Provisioning",
		},
		"room beside a pod that exists, on an instance still to come": {
			scene: aScene(queued("bert", 2, "300m", time.Minute), waiting("0")), actions: []string{"create t4-new1"}, capacity: "Unknown Provisioning",
		},
		"the pods of a job that was just admitted count once": {
			scene: aScene(queued("bert", 1, "500m", time.Minute), waiting("0"), has("t4-x", running, isReady(time.Second), uses("3", true),
				remembers(memo{revoked: true}))), capacity: ready,
		},
		"more is taken by the pods of every node than is known beforehand": {
			scene: aScene(queued("bert", 1, "3700m", time.Hour), has("t4-x", running, isReady(time.Hour), uses("400m", false),
				remembers(memo{revoked: true, emptySince: noon.Add(-time.Minute)}))), capacity: "False PodDoesNotFit", message: "pod bert-0 is not scheduled although",
		},
		"a node that is not ready is no room": {
			scene: aScene(queued("bert", 1, "3", time.Hour), free("t4-x", time.Hour), func(s *scene) {
				s.nodes["t4-x"].Status.Conditions[0].Status = corev1.ConditionUnknown
				s.nodes["t4-x"].Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon)
			}), actions: []string{"create t4-new1"}, capacity: "Unknown Provisioning",
		},
		"nor is one that was cordoned": {
			scene:   aScene(queued("bert", 1, "3", time.Hour), free("t4-x", time.Hour), func(s *scene) { s.nodes["t4-x"].Spec.Unschedulable = true }),
			actions: []string{"create t4-new1"}, capacity: "Unknown Provisioning",
		},
		"one that is too large holds up no other": {
			scene:   aScene(queued("huge", 1, "64", time.Hour), queued("large", 1, "64", time.Hour), queued("bert", 1, "3", time.Minute)),
			actions: []string{"create t4-new1"}, capacity: "False PodDoesNotFit", message: "pod huge-0 requests more",
		},
		"those behind one that waits for others to end": {
			scene:    aScene(queued("large", 3, "3", time.Hour), queued("bert", 1, "3", time.Minute), none("t4-x")),
			capacity: "False MaxInstancesReached", message: "TrainingJob/large waits in its queue",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := plan(test.scene.observed)
			assert.Equal(t, test.actions, outlineOf(d).Acts)
			is := meta.FindStatusCondition(d.status.Conditions, reasons.ConditionCapacityAvailable)
			require.NotNil(t, is)
			assert.Equal(t, test.capacity, string(is.Status)+" "+is.Reason)
			assert.Contains(t, is.Message, test.message)
		})
	}
}

// podsWithoutPlace plays the controller of TrainingJobs: until a job is admitted it lacks room for pods with its requests.
func podsWithoutPlace(job *mlv1.TrainingJob) []*corev1.Pod {
	if of := job.Status.Admission; of == nil || of.AdmittedTime != nil {
		return nil
	}
	var pods []*corev1.Pod
	for index := range job.Spec.NumWorkers {
		pod := aPod(fmt.Sprintf("%s-%d", job.Name, index), ofTrainingJob("0"))
		pod.Labels[mlv1.LabelTrainingJob], pod.CreationTimestamp = job.Name, job.CreationTimestamp
		pod.Spec.Containers = []corev1.Container{{Resources: *job.Spec.Resources}}
		pods = append(pods, pod)
	}
	return pods
}

// admission has the queue write something about the job.
func (c *cluster) admission(job *mlv1.TrainingJob, is *mlv1.AdmissionStatus) {
	c.t.Helper()
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(job), job))
	before := job.DeepCopy()
	job.Status.Admission = is
	require.NoError(c.t, c.Status().Patch(c.t.Context(), job, client.MergeFrom(before)))
}

// A job that waits in a queue has no pods, and gets its instances nevertheless.
func TestAPIInstancesAreCreatedForAJobInAQueue(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.IdleTimeout = &metav1.Duration{Duration: time.Second} })
	job := builders.TrainingJob("bert").Namespace(c.namespace).Workers(2).GPUs(0).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{QueueName: "research", Spot: &mlv1.SpotReference{Name: "t4"}}
		s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}
	}).ToCreate()
	require.NoError(t, c.Create(t.Context(), job))
	c.admission(job, &mlv1.AdmissionStatus{QueuedTime: &job.CreationTimestamp})

	is := c.await(vm, "two instances for the queued job", c.agree(2))
	for _, entry := range is.Status.ProvisionedInstances {
		assert.Equal(t, "TrainingJob/bert", entry.AssignedJob)
	}
	c.await(vm, "an instance that is kept", func(is *spotv1alpha1.SpotInstanceVM) bool { return is.Status.ReadyInstances == 2 })

	// It is admitted, but its pods do not come: the instances have nothing to do.
	c.admission(job, &mlv1.AdmissionStatus{QueuedTime: &job.CreationTimestamp, AdmittedTime: &metav1.Time{Time: time.Now()}})
	c.await(vm, "no instance", c.agree(0))
}

// The cache of pods may be ahead of that of jobs.
func TestAJobWithPodsDoesNotWait(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"its own":                   {aPod("a", ofTrainingJob("0"), on("node")), true},
		"has ended":                 {aPod("a", ofTrainingJob("0"), succeeded), false},
		"of another":                {aPod("a"), false},
		"one that is being deleted": {aPod("a", ofTrainingJob("0"), on("node"), terminating), false},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed{pods: []*corev1.Pod{test.pod}}
			assert.Equal(t, test.want, o.hasPodsOf("TrainingJob/llama"))
		})
	}
}
