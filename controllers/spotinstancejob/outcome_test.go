package spotinstancejob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

func TestACheckpointIsNotUnusableWhileItsRegistryIsUnavailable(t *testing.T) {
	for message, want := range map[string]outcomeKind{
		"":                      active,
		"dial tcp: i/o timeout": active,
		"401 Unauthorized":      active,
		"registry.example.com:5000/team/checkpoints:x: not found": unstartable,
		"MANIFEST UNKNOWN": unstartable,
	} {
		w := worldOf(spotJob().Replicas(1).Checkpoints(hour))
		pod := w.pod(w.attempt(0, 1, annotationStartedFrom, "x"), "a")
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now),
		}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: message},
		}}}

		w.at(hour)

		assert.Equal(t, want, w.outcomeOf(w.observed.replicas()[0]).kind, message)
	}
}

// The kubelet marks what it evicts for pressure as disrupted too, on which the Job's first rule ends it.
func TestAnEvictionForPressureCountsAsAFailure(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(hour))
	job, pod := w.runs(0, 0, "a")
	pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: ephemeral-storage."
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
	}}
	w.fail(job, batchv1.JobReasonPodFailurePolicy)

	v := w.outcomeOf(w.observed.replicas()[0])

	assert.Equal(t, failed, v.kind)
	assert.Contains(t, v.message, "low on resource")
	d := plan(w.at(hour).observed)
	require.Len(t, d.create, 1)
	assert.Equal(t, "1", d.create[0].Annotations[annotationFailures])
}

// A deletion of a Job by the API leaves its pods behind by default.
func TestAPodThatLostItsJobIsStoppedBeforeTheNextStarts(t *testing.T) {
	w := worldOf(spotJob().Replicas(1))
	_, pod := w.runs(0, 0, "a")
	w.jobs, pod.OwnerReferences = nil, nil

	d := plan(w.observed)

	assert.Equal(t, []*corev1.Pod{pod}, d.orphans)
	assert.Empty(t, d.create, "two would run at the same index")
	w.pods = nil
	assert.Len(t, plan(w.observed).create, 1)
}

func TestALaterNoticeTakesACheckpointOfItsOwn(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(3 * time.Hour))
	job, _ := w.runs(0, 0, "a")
	w.at(2 * hour)
	w.backup(0, hour, checkpointbackup.Completed, job.Name) // for a notice that was withdrawn
	w.notice("a", 0)

	assert.Len(t, plan(w.observed).checkpoints, 1)

	w.backup(0, time.Second, checkpointbackup.Checkpointing, job.Name)
	assert.Empty(t, plan(w.observed).checkpoints, "one for each notice")
}

func TestTheCheckpointThatWasTrainedLongestIsGoneOnFrom(t *testing.T) {
	w := worldOf(spotJob().Checkpoints(hour))
	w.at(4 * hour)
	far := w.backup(0, 20*time.Minute, checkpointbackup.Completed, "")
	far.Labels[labelTrained] = "10800"
	name := far.Key.Name
	w.backup(1, 10*time.Minute, checkpointbackup.Completed, "").Labels[labelTrained] = "600"

	from := w.newest(nil)

	assert.Equal(t, name, from.name)
	assert.Equal(t, int32(10800), from.trained)
	assert.Equal(t, "10800", buildJob(w.job, 0, 1, from, 0, nil).Annotations[labelTrained])
}

func TestHowLongACheckpointWasTrained(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(hour))
	job, pod := w.runs(0, 1, "a")
	job.Annotations[labelTrained] = "600"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)},
	}}}

	d := plan(w.at(hour).observed)

	require.Len(t, d.checkpoints, 1)
	assert.Equal(t, "4200", d.checkpoints[0].Labels[labelTrained])
}

// A cache that is behind shows the end of a Job before that of its pod.
func TestAFailureIsCountedThoughTheCacheLacksThePod(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(hour))
	job, pod := w.runs(0, 0, "a")
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "train", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1},
	}}}
	w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
	r := &Reconciler{Direct: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).Build()}
	w.pods = nil

	require.NoError(t, r.observeUnseenPods(t.Context(), &w.observed))

	assert.Equal(t, failed, w.outcomeOf(w.observed.replicas()[0]).kind)
}

func TestPodsThatTheirSidecarsOutliveAreEnded(t *testing.T) {
	w := worldOf(spotJob().Replicas(1))
	_, pod := w.runs(0, 0, "a")
	exit(pod, 3, time.Minute)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	})
	assert.Equal(t, []podend.Outlived{{Pod: pod, Phase: corev1.PodFailed, Others: []string{"proxy"}}}, plan(w.observed).outlived)
}

// The kubelet reports the pod as failed in the end, and the Job controller believes it.
func TestASidecarThatFailsWhenItIsStoppedIsNoFailure(t *testing.T) {
	w := worldOf(spotJob().Replicas(1))
	job, pod := w.runs(0, 0, "a")
	exit(pod, 0, time.Minute)
	w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
	assert.Equal(t, succeeded, w.outcomeOf(w.replicas()[0]).kind)
}
