package trainingjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestCompletion(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	workers := builders.Workers(job)
	pod := func(replica int) *builders.PodBuilder { return builders.Pod(workers.Obj(), replica) }
	completed := func(reason string) outline {
		return outline{
			State: mlv1.StateCompleted, Reason: reason, Workers: mlv1.WorkersStatus{Total: 2, Succeeded: 2},
			Conditions: conditions{
				"Admitted": admitted, "Initialized": "True " + reason, "Running": "False " + reason, "Complete": "True " + reason,
			},
		}
	}
	tests := map[string]struct {
		observed observed
		want     outline
		message  string // of the condition Complete
	}{
		"as soon as all pods have succeeded": {
			observed: see(job, workers.Obj(), pod(0).Succeeded("").Obj(), pod(1).Succeeded("").Obj()),
			want:     completed(reasons.TrainingCompleted), message: "all workers ended with exit code 0",
		},
		"by the Job's word when its pods are gone": {
			observed: see(job, builders.Workers(job).Condition(batchv1.JobComplete, "CompletionsReached", "").Obj()),
			want:     completed(reasons.TrainingCompleted), message: "all workers ended with exit code 0",
		},
		"early, for the target is reached": {
			observed: see(job, workers.Obj(), pod(1).Succeeded("").Obj(),
				pod(0).Succeeded(`{"reason": "TargetReached", "message": "accuracy 0.96 is at least 0.95"}`).Obj()),
			want: completed(reasons.TargetReached), message: "accuracy 0.96 is at least 0.95",
		},
		"early, for the training no longer improves": {
			observed: see(job, workers.Obj(), pod(1).Succeeded("").Obj(),
				pod(0).Succeeded(`{"reason": "EarlyStopped", "message": "no improvement for 5 epochs"}`).Obj()),
			want: completed(reasons.EarlyStopped), message: "no improvement for 5 epochs",
		},
		"with a reason of the worker's own, which is not the API's": {
			observed: see(job, workers.Obj(), pod(0).Succeeded(`{"reason": "Bored"}`).Obj(), pod(1).Succeeded("").Obj()),
			want:     completed(reasons.TrainingCompleted), message: "all workers ended with exit code 0",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan(test.observed)

			lookingLike(t, test.want, got)
			for _, condition := range got.status.Conditions {
				if condition.Type == reasons.ConditionComplete {
					assert.Equal(t, test.message, condition.Message)
				}
			}
		})
	}
}

func TestTwoPodsOfOneReplicaAreNotTwoReplicas(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Obj()
	workers := builders.Workers(job).Obj()
	first, second := builders.Pod(workers, 0).Succeeded("").Obj(), builders.Pod(workers, 1).Succeeded("").Obj()

	assert.False(t, hasSucceeded(workers, []*corev1.Pod{first, first}))
	assert.True(t, hasSucceeded(workers, []*corev1.Pod{first, second}))
}

func TestTheStatusOfACompletedJobTellsAll(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Checkpoints().TTL(60))
	job.Generation = 2
	workers := builders.Workers(job).Obj()
	last := `{"training_epoch": 3, "training_epochs": 3, "training_progress_ratio": 1, "training_loss": 0.25,
		"training_checkpoint_path": "/checkpoints/bert/uid-of-bert/checkpoint-epoch-3", "training_checkpoint_epoch": 3,
		"training_checkpoint_step": 300, "training_checkpoint_size_bytes": 4096, "training_checkpoint_timestamp_seconds": 1893589200}`

	d := plan(see(job, workers, builders.Pod(workers, 0).Succeeded(last).Obj()).after(65 * time.Minute))

	noon, end := metav1.NewTime(builders.Noon), metav1.NewTime(builders.Noon.Add(65*time.Minute))
	condition := func(kind, reason, message string, status metav1.ConditionStatus, since metav1.Time, generation int64) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: since, ObservedGeneration: generation,
		}
	}
	const ended = "all workers ended with exit code 0"
	assert.Empty(t, cmp.Diff(mlv1.TrainingJobStatus{
		ObservedGeneration: 2, UID: "uid-of-bert",
		StartCount: 1,
		State:      mlv1.StateCompleted, Phase: mlv1.PhaseSucceeded, Reason: reasons.TrainingCompleted,
		Conditions: []metav1.Condition{
			condition("Admitted", "AdmittedUnqueued", "admitted at once because the job names no queue", "True", noon, 2),
			condition("CheckpointReady", "StorageReady", "checkpoints are kept on the claim bert-checkpoints", "True", noon, 2),
			condition("Initialized", "TrainingCompleted", ended, "True", noon, 2),
			condition("Running", "TrainingCompleted", ended, "False", end, 2),
			condition("Complete", "TrainingCompleted", ended, "True", end, 2),
		},
		Progress: "100%", CurrentEpoch: 3, TotalEpochs: 3,
		Metrics: map[string]float64{"loss": 0.25}, MetricsTime: &end,
		Workers: &mlv1.WorkersStatus{Total: 1, Succeeded: 1},
		Checkpoint: &mlv1.CheckpointStatus{
			Path: "/bert/uid-of-bert/checkpoint-epoch-3", Epoch: 3, Step: 300, SizeBytes: 4096, ClaimName: "bert-checkpoints",
			Time: ptr.To(metav1.NewTime(time.Date(2030, 1, 2, 13, 0, 0, 0, time.UTC))),
		},
		Resources: &mlv1.ResourcesStatus{Workers: 1},
		StartTime: &noon, CompletionTime: &end, Duration: "1h5m0s",
		Selector: "training-job=bert",
	}, d.status))
	assert.Equal(t, time.Minute, d.again, "its time to live")
}

func TestAJobThatEndsBeforeItIsSeenRunningStartedWithItsWorkers(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	workers := builders.Workers(job).Obj()

	d := plan(see(job, workers, builders.Pod(workers, 0).Succeeded("").Obj()).after(3 * time.Second))

	assert.Equal(t, mlv1.StateCompleted, d.status.State)
	assert.Equal(t, metav1.NewTime(builders.Noon), *d.status.StartTime)
	assert.Equal(t, "3s", d.status.Duration)
}

func TestDeadline(t *testing.T) {
	exceeded := outline{
		State: mlv1.StateFailed, Reason: reasons.DeadlineExceeded, FailureReason: "ran longer than activeDeadlineSeconds 100",
		Workers: mlv1.WorkersStatus{Total: 1},
	}
	t.Run("is looked for in time", func(t *testing.T) {
		job := runningJob(t, builders.TrainingJob("bert").Deadline(100))
		assert.Equal(t, time.Minute, plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...).after(40*time.Second)).again)
	})
	t.Run("stops the workers, and fails the job once they have ended", func(t *testing.T) {
		job := runningJob(t, builders.TrainingJob("bert").Deadline(100).Checkpoints())
		workers := builders.Workers(job).Obj()

		due := plan(see(job, workers, runningPods(job, 0)...).after(100 * time.Second))
		assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(due).Delete)
		assert.Equal(t, mlv1.StateRunning, due.status.State, "the workers save a checkpoint now")
		assert.Equal(t, "True DeadlineExceeded", outlineOf(due).Conditions["Stopping"])

		job.Status = due.status
		saving := plan(see(job, nil, builders.Pod(workers, 0).Running().Deleting(2*time.Minute).Obj()).after(101 * time.Second))
		assert.Equal(t, mlv1.StateRunning, saving.status.State)
		assert.Zero(t, saving.status.RestartCount, "workers that were stopped are no failure")

		job.Status = saving.status
		saved := see(job, nil).after(110 * time.Second)
		saved.final = saying(workers, lastWordsOfEpoch7)
		ended := plan(saved)
		want := exceeded
		want.Conditions = conditions{
			"Admitted": admitted, "Initialized": "True DeadlineExceeded", "Running": "False DeadlineExceeded", "Failed": "True DeadlineExceeded",
			"Stopping": "False DeadlineExceeded", "CheckpointReady": "True StorageReady",
		}
		lookingLike(t, want, ended)
		assert.Equal(t, int32(7), ended.status.Checkpoint.Epoch, "the last checkpoint is told")
	})
	t.Run("does not fail a job that was done in time", func(t *testing.T) {
		job := runningJob(t, builders.TrainingJob("bert").Deadline(100))
		workers := builders.Workers(job).Obj()
		assert.Equal(t, mlv1.StateCompleted, plan(see(job, workers, builders.Pod(workers, 0).Succeeded("").Obj()).after(time.Hour)).status.State)
	})
	t.Run("is not passed while the job is suspended, though it had just passed", func(t *testing.T) {
		job := runningJob(t, builders.TrainingJob("bert").Deadline(100))
		job.Status = plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...).after(100 * time.Second)).status
		job.Spec.Suspend = ptr.To(true)
		job.Status = plan(see(job, nil).after(101 * time.Second)).status
		assert.Equal(t, mlv1.StateSuspended, job.Status.State)
		job.Spec.Suspend = ptr.To(false)
		assert.Equal(t, mlv1.StateInitializing, plan(see(job, nil).after(102*time.Second)).status.State)
	})
	t.Run("goes on across restarts", func(t *testing.T) {
		job := failingJob(t, builders.TrainingJob("bert").Deadline(100), 1)
		want := exceeded
		want.Restarts = 1
		want.Workers.Failed = 1
		want.Conditions = conditions{
			"Admitted": admitted, "Initialized": "False DeadlineExceeded", "Running": "False DeadlineExceeded", "Failed": "True DeadlineExceeded",
			"Restarting": "False DeadlineExceeded",
		}
		lookingLike(t, want, plan(see(job, nil).after(100*time.Second)))
	})
	t.Run("is looked for during a backoff", func(t *testing.T) {
		job := failingJob(t, builders.TrainingJob("bert").Deadline(5), 2)
		assert.Greater(t, backoff(job), 5*time.Second)
		assert.Equal(t, 5*time.Second, plan(see(job, nil)).again)
	})
	t.Run("is looked for while pods of an earlier attempt end", func(t *testing.T) {
		job := failingJob(t, builders.TrainingJob("bert").Deadline(5), 1)
		ending := builders.Pod(builders.Workers(job).Obj(), 0).Running().Deleting(time.Minute).Obj()
		assert.Equal(t, 5*time.Second, plan(see(job, nil, ending)).again)
	})
	t.Run("does not pass while the job is suspended", func(t *testing.T) {
		job := suspendedJob(t, builders.TrainingJob("bert").Deadline(100))
		assert.Equal(t, mlv1.StateSuspended, plan(see(job, nil).after(time.Hour)).status.State)
	})
	t.Run("starts again when the job is resumed", func(t *testing.T) {
		job := suspendedJob(t, builders.TrainingJob("bert").Deadline(100))
		job.Spec.Suspend = nil
		workers := builders.Workers(job).Obj()
		resumed := plan(see(job, workers, runningPods(job, 0)...).after(time.Hour))
		assert.Equal(t, 100*time.Second, resumed.again)

		job.Status = resumed.status
		assert.Equal(t, mlv1.StateRunning, plan(see(job, workers, runningPods(job, 0)...).after(time.Hour+99*time.Second)).status.State)
		late := plan(see(job, workers, runningPods(job, 0)...).after(time.Hour + 100*time.Second))
		assert.NotNil(t, stoppingCondition(&late.status))
	})
	t.Run("does not fail a job that is being suspended again", func(t *testing.T) {
		job := suspendedJob(t, builders.TrainingJob("bert").Deadline(100))
		workers := builders.Workers(job).Obj()
		for _, suspend := range []bool{false, true, true} {
			job.Spec.Suspend = ptr.To(suspend)
			job.Status = plan(see(job, workers, runningPods(job, 0)...).after(time.Hour)).status
			assert.Equal(t, mlv1.StateRunning, job.Status.State)
		}
	})
	t.Run("does not pass before all workers ran", func(t *testing.T) {
		job := builders.TrainingJob("bert").Deadline(100).Obj()
		workers := builders.Workers(job).Obj()
		assert.Equal(t, mlv1.StateInitializing, plan(see(job, workers, builders.Pod(workers, 0).Obj()).after(time.Hour)).status.State)
	})
}

func TestAFinishedJobStaysAsItIs(t *testing.T) {
	for _, state := range []mlv1.State{mlv1.StateCompleted, mlv1.StateFailed} {
		t.Run(string(state), func(t *testing.T) {
			status := mlv1.TrainingJobStatus{State: state, Phase: phases[state], Reason: "Any", ObservedGeneration: 1}
			job := builders.TrainingJob("bert").Suspended().Deadline(1).Status(status).Obj()
			workers := builders.Workers(job).Obj()

			d := plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Obj()).after(time.Hour))

			assert.Empty(t, cmp.Diff(status, d.status))
			assert.Empty(t, d.apply)
			assert.Zero(t, d.again)
		})
	}
}

func TestTimeToLive(t *testing.T) {
	finished := mlv1.TrainingJobStatus{State: mlv1.StateCompleted, CompletionTime: ptr.To(metav1.NewTime(builders.Noon))}
	job := builders.TrainingJob("bert").TTL(60).Cleanup(mlv1.CleanupAll).Status(finished).Obj()

	early := plan(see(job, nil).after(59 * time.Second))
	due := plan(see(job, builders.Workers(job).Obj()).after(60 * time.Second))

	assert.False(t, early.deleteSelf)
	assert.Equal(t, time.Second, early.again)
	assert.True(t, due.deleteSelf)
	assert.Empty(t, due.delete, "the children go with their owner")

	job.Spec.TTLSecondsAfterFinished = nil
	forever := plan(see(job, nil).after(10000 * time.Hour))
	assert.False(t, forever.deleteSelf)
	assert.Zero(t, forever.again)
}

func TestCleanup(t *testing.T) {
	all := []string{"Job bert-training, attempt 0", "ConfigMap bert-config", "Service bert-headless", "Service bert-master"}
	tests := map[string]struct {
		policy mlv1.CleanupPolicy
		want   []string
	}{
		"None keeps all": {policy: mlv1.CleanupNone},
		"Running deletes the pods that still run":                                                 {policy: mlv1.CleanupRunning, want: []string{"Pod bert-training-1-a0"}},
		"All deletes the Job, the Services and the ConfigMap, and keeps claim and ServiceAccount": {policy: mlv1.CleanupAll, want: all},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Workers(5).Checkpoints().Cleanup(test.policy).
				Status(mlv1.TrainingJobStatus{State: mlv1.StateFailed}).Obj()
			workers := builders.Workers(job).Obj()
			pod := func(replica int) *builders.PodBuilder { return builders.Pod(workers, replica) }
			o := see(job, workers,
				pod(0).Failed(1).Obj(), pod(1).Running().Obj(), pod(2).Running().Deleting(time.Minute).Obj(), pod(3).Succeeded("").Obj())
			o.with(build.HeadlessService(job), build.MasterService(job), build.ConfigMap(job), build.ServiceAccount(job), build.Claim(job))

			assert.Equal(t, test.want, outlineOf(plan(o)).Delete)

			assert.Empty(t, plan(see(job, nil)).delete, "nothing is deleted twice")
		})
	}
}

// The cache of pods can be behind that of Jobs.
func TestCleanupKeepsThePodsOfACompleteJobThoughTheySeemToRun(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) { s.CleanupPolicy = mlv1.CleanupRunning }).
		Status(mlv1.TrainingJobStatus{State: mlv1.StateCompleted}).Obj()
	workers := builders.Workers(job).Condition(batchv1.JobComplete, "", "").Obj()
	o := see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Running().Obj())

	assert.Empty(t, outlineOf(plan(o)).Delete)
}

func TestRefusals(t *testing.T) {
	pending := see(builders.TrainingJob("bert").Obj(), nil)
	started := see(builders.TrainingJob("bert").Obj(), builders.Workers(builders.TrainingJob("bert").Obj()).Obj())
	tests := map[string]struct {
		refused desired
		want    outline
	}{
		"a spec that can never be met fails the job": {
			refused: refused(pending, reasons.InvalidSpec, "bad affinity", true),
			want: outline{
				State: mlv1.StateFailed, Reason: reasons.InvalidSpec, FailureReason: "bad affinity",
				Conditions: conditions{"Running": "False InvalidSpec", "Failed": "True InvalidSpec"},
			},
		},
		"a quota keeps the job Pending": {
			refused: refused(pending, reasons.Forbidden, "exceeded quota", false),
			want: outline{
				State: mlv1.StatePending, Reason: reasons.Forbidden, Again: 5 * time.Second,
				Conditions: conditions{"Initialized": "False Forbidden"},
			},
		},
		"a stranger's Service keeps a job whose workers exist Initializing": {
			refused: refused(started, reasons.ObjectConflict, "Service bert-master exists", false),
			want: outline{
				State: mlv1.StateInitializing, Reason: reasons.ObjectConflict, Again: 5 * time.Second,
				Conditions: conditions{"Initialized": "False ObjectConflict", "Running": "False ObjectConflict"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { lookingLike(t, test.want, test.refused) })
	}
}

func TestFiguresReachTheStatus(t *testing.T) {
	scraped := func(t *testing.T, ratio float64) observed {
		job := runningJob(t, builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
			s.Hyperparameters = &mlv1.Hyperparameters{Epochs: ptr.To[int32](10)}
		}))
		o := see(job, builders.Workers(job).Obj(), runningPods(job, 0)...)
		o.read.Time, o.read.Figures = builders.Noon.Add(time.Minute), &progress.Figures{
			Epoch: 4, Ratio: &ratio, Metrics: map[string]float64{"loss": 0.5}, GPUUtilizationPercent: ptr.To(87.5),
		}
		return o
	}
	for name, test := range map[string]struct {
		ratio float64
		want  string
	}{
		"a share": {ratio: 0.456, want: "45%"},
		"a share that floating point falls short of": {ratio: 0.29, want: "29%"},
		"not yet all":       {ratio: 0.9999, want: "99%"},
		"all":               {ratio: 1, want: "100%"},
		"more than all":     {ratio: 7, want: "100%"},
		"less than nothing": {ratio: -1, want: "0%"},
	} {
		t.Run(name, func(t *testing.T) {
			status := plan(scraped(t, test.ratio)).status
			assert.Equal(t, test.want, status.Progress)
			assert.Equal(t, int32(4), status.CurrentEpoch)
			assert.Equal(t, int32(10), status.TotalEpochs, "from the spec when the worker does not say")
			assert.Equal(t, map[string]float64{"loss": 0.5}, status.Metrics)
			assert.Equal(t, metav1.NewTime(builders.Noon.Add(time.Minute)), *status.MetricsTime)
			assert.Equal(t, 87.5, *status.Resources.GPUUtilizationPercent)
		})
	}
	t.Run("the same figures again change nothing", func(t *testing.T) {
		o := scraped(t, 0.5)
		job := o.job.DeepCopy()
		job.Status = plan(o).status
		o.job, o.read.Time = job, builders.Noon.Add(time.Hour)
		assert.Empty(t, cmp.Diff(job.Status, plan(o).status))
	})
	t.Run("the termination message of a failed attempt is kept", func(t *testing.T) {
		job := runningJob(t, builders.TrainingJob("bert"))
		workers := builders.Workers(job).Obj()
		status := plan(see(job, workers, builders.Pod(workers, 0).Failed(143).Saying(`{"training_epoch": 7}`).Obj())).status
		assert.Equal(t, int32(7), status.CurrentEpoch)
		assert.Equal(t, mlv1.StateRestarting, status.State)
	})
}

func TestMetricsAreReadFromReplicaZeroOnly(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Obj()
	workers := builders.Workers(job).Obj()
	six := builders.Pod(workers, 0).Running().Obj()
	six.Status.PodIP = "fd00::1"
	unread := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Monitoring.Enabled = ptr.To(false) }).Obj()

	assert.Equal(t, "http://10.0.0.10:8080/metrics", metricsURL(job, runningPods(job, 0)))
	assert.Equal(t, "http://[fd00::1]:8080/metrics", metricsURL(job, []*corev1.Pod{six}))
	assert.Empty(t, metricsURL(job, []*corev1.Pod{builders.Pod(workers, 1).Running().Obj()}), "replica 0 does not exist")
	assert.Empty(t, metricsURL(job, []*corev1.Pod{builders.Pod(workers, 0).Obj()}), "replica 0 does not run")
	assert.Empty(t, metricsURL(unread, runningPods(job, 0)), "monitoring is turned off")
}
