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
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// runningJob is a job whose workers all run since noon.
func runningJob(t *testing.T, b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	t.Helper()
	job := b.Obj()
	workers := builders.Workers(job).Obj()
	job.Status = plan(see(job, workers, runningPods(job, 0)...)).status
	require.Equal(t, mlv1.StateRunning, job.Status.State)
	return job
}

// runningPods are the pods of all workers of an attempt.
func runningPods(job *mlv1.TrainingJob, attempt int) []*corev1.Pod {
	workers := builders.Workers(job).Attempt(attempt).Obj()
	var pods []*corev1.Pod
	for replica := range int(job.Spec.NumWorkers) {
		pods = append(pods, builders.Pod(workers, replica).Running().Obj())
	}
	return pods
}

// failingJob is a job that has restarted so many times after failures, the last time at noon.
func failingJob(t *testing.T, b *builders.TrainingJobBuilder, restarts int) *mlv1.TrainingJob {
	t.Helper()
	job := runningJob(t, b)
	for attempt := range restarts {
		workers := builders.Workers(job).Attempt(attempt).Obj()
		job.Status = plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Obj())).status
	}
	require.Equal(t, mlv1.StateRestarting, job.Status.State)
	return job
}

const crashed = "worker 1 (pod bert-training-1-a0) ended with exit code 1"

func TestARestartIsWrittenDownBeforeItIsDone(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	workers := builders.Workers(job).Obj()

	intent := plan(see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Failed(1).Obj()))

	restarting := outline{
		State: mlv1.StateRestarting, Reason: reasons.ProgramFailed, Restarts: 1, FailureReason: crashed,
		Workers: mlv1.WorkersStatus{Total: 2, Failed: 1},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "False ProgramFailed", "Running": "False ProgramFailed", "Restarting": "True ProgramFailed",
		},
	}
	lookingLike(t, restarting, intent)
	assert.Equal(t, metav1.NewTime(builders.Noon), *intent.status.LastRestartTime)

	job.Status = intent.status
	replace := plan(see(job, workers, builders.Pod(workers, 1).Failed(1).Obj()))
	restarting.Delete = []string{"Job bert-training, attempt 0"}
	lookingLike(t, restarting, replace)

	gone := plan(see(job, builders.Workers(job).Deleting().Obj(), builders.Pod(workers, 1).Failed(1).Obj()))
	restarting.Delete = nil
	lookingLike(t, restarting, gone)

	again := plan(see(job, nil))
	restarting.Apply = []string{"ServiceAccount bert-training", "Job bert-training, attempt 1"}
	restarting.More = true
	lookingLike(t, restarting, again)
}

func TestARestartedJobRunsAgain(t *testing.T) {
	job := failingJob(t, builders.TrainingJob("bert").Workers(2), 1)
	workers := builders.Workers(job).Attempt(1).Obj()
	all := []string{
		"ServiceAccount bert-training", "Job bert-training, attempt 1",
		"ConfigMap bert-config", "Service bert-headless", "Service bert-master",
	}

	starting := plan(see(job, workers, builders.Pod(workers, 0).Obj(), builders.Pod(workers, 1).Obj()))
	running := plan(see(job, workers, runningPods(job, 1)...).after(time.Minute))

	lookingLike(t, outline{
		Apply: all, State: mlv1.StateRestarting, Reason: reasons.WorkersStarting, Restarts: 1,
		FailureReason: job.Status.FailureReason, Workers: mlv1.WorkersStatus{Total: 2},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "False WorkersStarting", "Running": "False WorkersStarting", "Restarting": "True ProgramFailed",
		},
	}, starting)
	lookingLike(t, outline{
		Apply: all, Scrape: "http://10.0.0.10:8080/metrics",
		State: mlv1.StateRunning, Reason: reasons.WorkersRunning, Restarts: 1,
		FailureReason: job.Status.FailureReason, Workers: mlv1.WorkersStatus{Total: 2, Active: 2},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "True WorkersRunning", "Running": "True WorkersRunning", "Restarting": "False WorkersRunning",
		},
	}, running)
	assert.Equal(t, metav1.NewTime(builders.Noon), *running.status.StartTime, "the start is that of the first attempt")
}

func TestTheNextAttemptStartsOnlyAfterTheBackoff(t *testing.T) {
	job := failingJob(t, builders.TrainingJob("bert"), 2)
	pause := backoff(job)
	require.Positive(t, pause)

	early := plan(see(job, nil).after(pause - time.Second))
	due := plan(see(job, nil).after(pause))

	assert.Empty(t, early.apply)
	assert.Equal(t, time.Second, early.again)
	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 2"}, outlineOf(due).Apply)
}

func TestADisruptionRestartsAtOnceAndIsCountedApart(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(0).RestartPolicy(mlv1.RestartNever))
	workers := builders.Workers(job).Obj()
	lost := builders.Pod(workers, 1).Failed(143).Disrupted("PreemptionByScheduler", "for another").Obj()

	d := plan(see(job, workers, builders.Pod(workers, 0).Failed(75).Obj(), lost))

	lookingLike(t, outline{
		State: mlv1.StateRestarting, Reason: reasons.PodPreempted, Restarts: 1, Disruptions: 1,
		FailureReason: "worker 1 (pod bert-training-1-a0) was preempted for a pod with a higher priority: PreemptionByScheduler: for another" +
			"; to prevent it, give the job a higher spec.scheduling.priority",
		Workers: mlv1.WorkersStatus{Total: 2, Failed: 2},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "False PodPreempted", "Running": "False PodPreempted", "Restarting": "True PodPreempted",
		},
	}, d)
	job.Status = d.status
	assert.True(t, plan(see(job, nil)).more, "the next attempt starts without a pause")
}

func TestAFailureBeforeAllWorkersRanRestartsToo(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Obj()
	workers := builders.Workers(job).Obj()

	d := plan(see(job, workers, builders.Pod(workers, 0).Obj(), builders.Pod(workers, 1).Failed(1).Obj()))

	assert.Equal(t, mlv1.StateRestarting, d.status.State)
	assert.Nil(t, d.status.StartTime)
}

func TestFailuresOfEarlierAttemptsAreNotCountedAmongThePresentOnes(t *testing.T) {
	job := failingJob(t, builders.TrainingJob("bert").Workers(2), 1)
	earlier := builders.Pod(builders.Workers(job).Obj(), 0).Failed(1).Obj() // not yet collected
	workers := builders.Workers(job).Attempt(1).Obj()

	d := plan(see(job, workers, earlier, builders.Pod(workers, 0).Obj(), builders.Pod(workers, 1).Failed(1).Obj()))

	assert.Equal(t, &mlv1.WorkersStatus{Total: 2, Failed: 1}, d.status.Workers)
}

func TestAJobThatSomebodyDeletesUnderARunningTrainingIsARestart(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))

	d := plan(see(job, nil, runningPods(job, 0)...))

	lookingLike(t, outline{
		State: mlv1.StateRestarting, Reason: reasons.JobDeleted, Restarts: 1, Disruptions: 1,
		FailureReason: "Job bert-training was deleted", Workers: mlv1.WorkersStatus{Total: 2},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "False JobDeleted", "Running": "False JobDeleted", "Restarting": "True JobDeleted",
		},
	}, d)
}

func TestFailuresThatEndTheJob(t *testing.T) {
	tests := map[string]struct {
		job     *builders.TrainingJobBuilder
		code    int32
		reason  string
		message string
	}{
		"restartPolicy Never": {
			job: builders.TrainingJob("bert").Workers(2).RestartPolicy(mlv1.RestartNever), code: 1,
			reason: reasons.RestartPolicyNever, message: "restartPolicy is Never: " + crashed,
		},
		"an exit code that says that the settings are wrong": {
			job: builders.TrainingJob("bert").Workers(2), code: 64,
			reason: reasons.NonRetryableExitCode, message: "worker 1 (pod bert-training-1-a0) ended with exit code 64",
		},
		"more failures than backoffLimit": {
			job: builders.TrainingJob("bert").Workers(2).BackoffLimit(0), code: 1,
			reason: reasons.BackoffLimitExceeded, message: "failed 1 times, backoffLimit is 0; last: " + crashed,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := runningJob(t, test.job)
			workers := builders.Workers(job).Obj()

			d := plan(see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Failed(test.code).Obj()).after(time.Hour))

			lookingLike(t, outline{
				State: mlv1.StateFailed, Reason: test.reason, FailureReason: test.message,
				Workers: mlv1.WorkersStatus{Total: 2, Failed: 1},
				Conditions: conditions{
					"Admitted": admitted, "Initialized": "True " + test.reason, "Running": "False " + test.reason, "Failed": "True " + test.reason,
				},
			}, d)
			assert.Equal(t, metav1.NewTime(builders.Noon.Add(time.Hour)), *d.status.CompletionTime)
			assert.Equal(t, "1h0m0s", d.status.Duration)
		})
	}
}

func TestAnElasticJobThatIsRescaledRestartsWithItsNewSize(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).Elastic(1, 4).Rescale(mlv1.RescaleRestart))
	pods := runningPods(job, 0)
	workers := builders.Workers(job).Obj()
	job.Spec.NumWorkers = 3

	intent := plan(see(job, workers, pods...))

	lookingLike(t, outline{
		State: mlv1.StateRestarting, Reason: reasons.Rescaled, Restarts: 1, Disruptions: 1,
		FailureReason: "spec.numWorkers changed from 2 to 3", Workers: mlv1.WorkersStatus{Total: 3},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "False Rescaled", "Running": "False Rescaled", "Restarting": "True Rescaled",
		},
	}, intent)

	job.Status = intent.status
	assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(plan(see(job, workers, pods...))).Delete)
	next := plan(see(job, nil))
	require.Len(t, next.apply, 2)
	assert.Equal(t, build.Workers(job, build.Settings{WorkerImage: "worker:1", AgentImage: "agent:1"}, 1), next.apply[1])
}
