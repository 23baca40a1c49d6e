package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// suspendedJob is a job that ran and was suspended at noon.
func suspendedJob(t *testing.T, b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	t.Helper()
	job := runningJob(t, b)
	job.Spec.Suspend = ptr.To(true)
	job.Status = plan(see(job, nil)).status
	require.Equal(t, mlv1.StateSuspended, job.Status.State)
	return job
}

func TestANewJobThatIsSuspendedGetsNoChildren(t *testing.T) {
	lookingLike(t, outline{
		State: mlv1.StateSuspended, Reason: reasons.Suspended, Workers: mlv1.WorkersStatus{Total: 1},
		Conditions: conditions{
			"Admitted": admitted, "Suspended": "True Suspended", "Running": "False Suspended", "Initialized": "False Suspended",
		},
	}, plan(see(builders.TrainingJob("bert").Suspended().Obj(), nil)))
}

func TestSuspendStopsTheWorkersAndThenSaysSo(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	job.Spec.Suspend = ptr.To(true)

	stopping := plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...))

	want := outline{
		Delete: []string{"Job bert-training, attempt 0"},
		State:  mlv1.StateRunning, Reason: reasons.Suspended, Workers: mlv1.WorkersStatus{Total: 2, Active: 2},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "True WorkersRunning", "Running": "True WorkersRunning", "Suspended": "False Suspended",
		},
	}
	lookingLike(t, want, stopping)

	job.Status = stopping.status
	ending := builders.Pod(builders.Workers(job).Obj(), 0).Running().Deleting(time.Minute).Obj()
	want.Delete, want.Again = nil, 75*time.Second
	lookingLike(t, want, plan(see(job, nil, ending)))

	lookingLike(t, outline{
		State: mlv1.StateSuspended, Reason: reasons.Suspended, Workers: mlv1.WorkersStatus{Total: 2},
		Conditions: conditions{
			"Admitted": admitted, "Initialized": "False Suspended", "Running": "False Suspended", "Suspended": "True Suspended",
		},
	}, plan(see(job, nil)))
}

// A job that was resumed would otherwise train again.
func TestAJobWhoseWorkersHaveEndedWellIsCompletedThoughItIsSuspended(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	job.Spec.Suspend = ptr.To(true)
	workers := builders.Workers(job).Obj()

	d := plan(see(job, workers, builders.Pod(workers, 0).Succeeded("").Obj(), builders.Pod(workers, 1).Succeeded("").Obj()))

	assert.Equal(t, mlv1.StateCompleted, d.status.State)
	assert.Empty(t, outlineOf(d).Delete)
}

func TestResumeStartsTheWorkersAgain(t *testing.T) {
	job := suspendedJob(t, builders.TrainingJob("bert"))
	job.Spec.Suspend = ptr.To(false)
	workers := builders.Workers(job).Obj()

	start := outlineOf(plan(see(job, nil).after(time.Hour)))
	starting := plan(see(job, workers, builders.Pod(workers, 0).Obj()).after(time.Hour))

	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"}, start.Apply, "a resumption is no restart")
	assert.Equal(t, mlv1.StateInitializing, starting.status.State)
	assert.Equal(t, conditions{
		"Admitted": admitted, "Initialized": "False WorkersStarting", "Running": "False WorkersStarting", "Suspended": "False Resumed",
	}, outlineOf(starting).Conditions)
	assert.Equal(t, builders.Noon.Add(time.Hour), resumedAt(&starting.status))
}

// An agent that was left over on a node that is cut off stops writing when one of a higher number has begun.
func TestAResumptionHasANumberOfItsOwn(t *testing.T) {
	numbers := func(d desired) map[string]string {
		for _, object := range d.apply {
			if workers, ok := object.(*batchv1.Job); ok {
				assert.Subset(t, workers.Annotations, workers.Spec.Template.Annotations)
				return workers.Spec.Template.Annotations
			}
		}
		return nil
	}
	started := func(d desired) *batchv1.Job {
		workers := builders.Workers(builders.TrainingJob("bert").Obj()).Obj()
		workers.Annotations = numbers(d)
		require.NotEmpty(t, workers.Annotations)
		return workers
	}
	job := builders.TrainingJob("bert").Obj()
	first := started(plan(see(job, nil)))
	assert.Equal(t, map[string]string{mlv1.AnnotationAttempt: "0", mlv1.AnnotationStart: "0"}, first.Annotations)
	job.Status = plan(see(job, first)).status
	assert.EqualValues(t, 1, job.Status.StartCount)
	job.Status = plan(see(job, first)).status
	assert.EqualValues(t, 1, job.Status.StartCount)

	job.Spec.Suspend = ptr.To(true)
	job.Status = plan(see(job, first)).status
	job.Status = plan(see(job, nil)).status
	job.Spec.Suspend = ptr.To(false)
	resumed := started(plan(see(job, nil)))
	assert.Equal(t, map[string]string{mlv1.AnnotationAttempt: "0", mlv1.AnnotationStart: "1"}, resumed.Annotations)
	job.Status = plan(see(job, resumed)).status
	assert.EqualValues(t, 2, job.Status.StartCount)

	job.Status.RestartCount++ // as a failure leaves it
	assert.Equal(t, map[string]string{mlv1.AnnotationAttempt: "1", mlv1.AnnotationStart: "2"}, started(plan(see(job, nil))).Annotations)

	job.Status.StartCount, job.Status.RestartCount = 0, 5 // of a version that did not count starts
	assert.Equal(t, map[string]string{mlv1.AnnotationAttempt: "5", mlv1.AnnotationStart: "5"}, started(plan(see(job, nil))).Annotations)
	assert.EqualValues(t, 4, plan(see(job, builders.Workers(job).Attempt(3).Obj())).status.StartCount)
}

func TestTheJobOfAStartStaysUntilTheStartIsCounted(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	workers := builders.Workers(job).Obj()
	job.Spec.Suspend = ptr.To(true)
	seen := plan(see(job, workers)) // the manager was killed after it had made the Job
	assert.Empty(t, seen.delete, "another one would take the same number if this manager is killed too")
	assert.NotZero(t, seen.again)
	assert.EqualValues(t, 1, seen.status.StartCount)
	job.Status = seen.status
	assert.Contains(t, plan(see(job, workers)).delete, workers)
}

func TestARestartThatIsSuspendedIsNoLongerRestarting(t *testing.T) {
	job := failingJob(t, builders.TrainingJob("bert"), 3)
	job.Spec.Suspend = ptr.To(true)

	job.Status = plan(see(job, nil)).status
	assert.Equal(t, "False Suspended", outlineOf(desired{status: job.Status}).Conditions["Restarting"])

	job.Spec.Suspend = nil
	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 3"}, outlineOf(plan(see(job, nil))).Apply,
		"after a resumption there is no backoff")
}

func TestAResumedJobThatMeetsAnObstacleIsPendingAndNotSuspended(t *testing.T) {
	job := suspendedJob(t, builders.TrainingJob("bert").Claim("shared"))
	job.Spec.Suspend = nil
	o := see(job, nil)
	o.missingClaim = "shared"

	d := plan(o)

	assert.Equal(t, mlv1.StatePending, d.status.State)
	assert.Equal(t, "False Resumed", outlineOf(d).Conditions["Suspended"])
}

func TestASuspendedJobStaysSuspendedWhateverItWillMeet(t *testing.T) {
	job := suspendedJob(t, builders.TrainingJob("bert").Claim("shared"))
	o := see(job, nil)
	o.missingClaim = "shared"

	assert.Equal(t, mlv1.StateSuspended, plan(o).status.State)
}

func TestAResumedJobThatEndsBeforeItIsSeenRunningIsNotSuspended(t *testing.T) {
	for name, end := range map[string]func(*builders.PodBuilder) *builders.PodBuilder{
		"completed": func(pod *builders.PodBuilder) *builders.PodBuilder { return pod.Succeeded("") },
		"failed":    func(pod *builders.PodBuilder) *builders.PodBuilder { return pod.Failed(64) },
		"restarted": func(pod *builders.PodBuilder) *builders.PodBuilder { return pod.Failed(1) },
	} {
		t.Run(name, func(t *testing.T) {
			job := suspendedJob(t, builders.TrainingJob("bert"))
			job.Spec.Suspend = nil
			workers := builders.Workers(job).Obj()

			d := plan(see(job, workers, end(builders.Pod(workers, 0)).Obj()))

			assert.Equal(t, "False Resumed", outlineOf(d).Conditions["Suspended"])
		})
	}
}
