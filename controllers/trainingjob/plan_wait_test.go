package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestALostPeerIsNotJudgedBeforeItsCauseCouldBeSeen(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	workers := builders.Workers(job).Obj()
	follower := builders.Pod(workers, 0).Failed(podend.ExitPeerLost).Obj()

	early := plan(see(job, workers, follower, builders.Pod(workers, 1).Running().Obj()))
	assert.Equal(t, mlv1.StateRunning, early.status.State, "nothing is decided yet")
	assert.Zero(t, early.status.RestartCount)
	assert.Equal(t, podend.CauseDelay, early.again)

	cause := plan(see(job, workers, follower, builders.Pod(workers, 1).Failed(137).Obj()))
	require.Equal(t, mlv1.StateRestarting, cause.status.State)
	assert.Contains(t, cause.status.FailureReason, "worker 1 ", "the worker that was killed is named, not the one that lost it")

	none := plan(see(job, workers, follower, builders.Pod(workers, 1).Running().Obj()).after(podend.CauseDelay))
	require.Equal(t, mlv1.StateRestarting, none.status.State, "the wait is bounded")
	assert.Contains(t, none.status.FailureReason, "worker 0 ")
}

func TestAPodThatNoSchedulerLooksAtIsToldInTime(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).Obj()
	workers := builders.Workers(job).Obj()
	unseen := builders.Pod(workers, 0).Unseen("no-such").Obj()

	first := plan(see(job, workers, unseen))
	assert.Equal(t, reasons.WorkersStarting, first.status.Reason)
	assert.Equal(t, time.Minute, first.again)

	later := plan(see(job, workers, unseen).after(time.Minute))
	assert.Equal(t, reasons.SchedulerSilent, later.status.Reason)
	assert.Equal(t, "pod bert-training-0-a0: scheduler no-such has not looked at it for 1m0s: see whether it runs, or correct spec.scheduling.schedulerName",
		waitingMessage(&later.status))
	scheduled := plan(see(job, workers, builders.Pod(workers, 0).Unseen("").On("n1").Obj()).after(time.Hour))
	assert.Equal(t, reasons.WorkersStarting, scheduled.status.Reason, "the cache does not keep that a pod with a node was scheduled")
}

func TestAJobThatFailsBeforeItRanNoLongerWaits(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).RestartPolicy(mlv1.RestartNever).Obj()
	workers := builders.Workers(job).Obj()
	job.Status = plan(see(job, workers, builders.Pod(workers, 0).Obj())).status
	assert.Equal(t, "False WorkersStarting", outlineOf(desired{status: job.Status}).Conditions["Initialized"])

	ended := plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Obj()))

	assert.Equal(t, "False RestartPolicyNever", outlineOf(ended).Conditions["Initialized"])
	assert.Equal(t, ended.status.FailureReason, messageOf(ended, reasons.ConditionInitialized))
}

func TestTheSchedulersWordIsToldOnlyWhenItLasts(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).Obj()
	workers := builders.Workers(job).Obj()
	refused := builders.Pod(workers, 0).Unschedulable("no GPU left").Obj()
	for i := range refused.Status.Conditions {
		if refused.Status.Conditions[i].Type == corev1.PodScheduled {
			refused.Status.Conditions[i].LastTransitionTime = metav1.NewTime(builders.Noon)
		}
	}

	first := plan(see(job, workers, refused))
	assert.Equal(t, reasons.WorkersStarting, first.status.Reason)
	assert.Equal(t, scheduling, first.again)

	later := plan(see(job, workers, refused).after(scheduling + time.Second))
	assert.Equal(t, reasons.Unschedulable, later.status.Reason)
	assert.Contains(t, waitingMessage(&later.status), "no GPU left")
}

func TestAJobWhoseSettingsDoNotGoTogetherIsNotStarted(t *testing.T) {
	job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
	}).Obj()
	d := plan(see(job, nil))
	assert.Equal(t, mlv1.StatePending, d.status.State)
	assert.Equal(t, reasons.InvalidSpec, d.status.Reason)
	assert.Equal(t, "spec.resources.claims: gpu is not in spec.podTemplate.resourceClaims: add it, or correct the name", waitingMessage(&d.status))
	assert.Empty(t, d.apply)
}

func TestAJobWaitsForTheClaimOfItsData(t *testing.T) {
	o := see(builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: build.ClaimSource("images", true)}}
	}).Obj(), nil)
	o.missingClaim = "images"
	d := plan(o)
	assert.Equal(t, reasons.ClaimNotFound, d.status.Reason)
	assert.Contains(t, waitingMessage(&d.status), "there is no PersistentVolumeClaim images in namespace ")
	assert.Contains(t, waitingMessage(&d.status), ": create it, or correct spec.volumes")
}

func TestAJobIsNotStartedWithoutTheQueueThatIsRequired(t *testing.T) {
	required := build.Settings{RequireQueue: true}
	kueue := map[string]string{build.KueueQueueLabel: "team"}
	for name, c := range map[string]struct {
		job  *mlv1.TrainingJob
		held bool
	}{
		"without a queue": {builders.TrainingJob("bert").Obj(), true},
		"in a queue": {builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
			s.Scheduling = &mlv1.Scheduling{QueueName: "q"}
		}).Obj(), false},
		"in a queue of Kueue":           {builders.TrainingJob("bert").Labels(kueue).Obj(), false},
		"that started before it was so": {runningJob(t, builders.TrainingJob("bert")), false},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed{job: c.job, settings: required, kueue: true}
			reason, message := o.findObstacle()
			if !c.held {
				assert.Empty(t, reason)
				return
			}
			assert.Equal(t, reasons.QueueRequired, reason)
			assert.Contains(t, message, "spec.scheduling.queueName: is not set")
			d := plan(o)
			assert.Equal(t, mlv1.StatePending, d.status.State)
			assert.Empty(t, d.apply, "nothing is made for it")
		})
	}
}
