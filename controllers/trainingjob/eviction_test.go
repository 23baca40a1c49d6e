package trainingjob

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAPlaceIsNotKeptForWorkersThatCannotStart(t *testing.T) {
	lacks := func(refused string) func(*observed) {
		return func(o *observed) {
			o.pods, o.creationRefused = o.pods[:1], refused
			o.pods[0].Status.Phase = corev1.PodRunning
		}
	}
	hangs := func(reason, message string) func(*observed) {
		return func(o *observed) { o.pods[0] = builders.Pod(o.workers, 0).On("a").Waiting(reason, message).Obj() }
	}
	for name, test := range map[string]struct {
		hinder  func(*observed)
		after   time.Duration
		reason  string
		message string
	}{
		"a quota": {
			lacks(`Error creating: pods "bert-training-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`),
			podCreation, reasons.ResourceQuotaExceeded, "1 of 2 pods could not be created: pods \"bert-training-1\" is forbidden: exceeded quota: small",
		},
		"Pod Security": {
			lacks(`Error creating: pods "bert-training-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`),
			podCreation, reasons.PodSecurityViolation, "violates PodSecurity",
		},
		"a webhook":                      {lacks("Error creating: failed calling webhook"), podCreation + 5*time.Minute, reasons.PodCreationFailed, "failed calling webhook"},
		"a Job controller that is away":  {lacks(""), podCreation + 5*time.Minute, reasons.PodCreationFailed, "1 of 2 pods could not be created"},
		"an image that cannot be pulled": {hangs("ImagePullBackOff", "not found"), 5 * time.Minute, reasons.ImagePullFailed, "cannot pull image"},
		"an image without a valid name":  {hangs("InvalidImageName", "couldn't parse"), 0, reasons.InvalidImageName, "is not a valid image reference"},
		"a missing Secret": {
			hangs("CreateContainerConfigError", `secret "x" not found`), 2 * time.Minute, reasons.ContainerConfigError, `secret "x" not found`,
		},
		"a volume that cannot be mounted": {
			hangs("ContainerCreating", ""), 30 * time.Minute, reasons.PodsNotStarted, "pod bert-training-0-a0 did not start within 30m0s: see its events",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := admittedJob(inQueue("bert"), "a", "b")
			queued := job.Status.Admission.QueuedTime
			workers := builders.Workers(job).Obj()
			attempt := func(start time.Duration) observed {
				created := metav1.NewTime(builders.Noon.Add(start))
				o := see(job, workers, builders.Pod(workers, 0).On("a").Obj(), builders.Pod(workers, 1).On("b").Running().Obj())
				test.hinder(&o)
				for _, pod := range o.pods {
					pod.CreationTimestamp = created
				}
				workers.CreationTimestamp = created
				return o
			}
			if test.after > 0 {
				early := plan(attempt(0).after(test.after - time.Millisecond))
				assert.Empty(t, early.status.Admission.Releasing, "not before its time")
				assert.Equal(t, time.Millisecond, early.again)
			}

			marked := plan(attempt(0).after(test.after))

			assert.Empty(t, outlineOf(marked).Delete, "the status is written first")
			assert.Contains(t, marked.status.Admission.Releasing, test.message)
			assert.Equal(t, "False "+test.reason, outlineOf(marked).Conditions["Admitted"])
			job.Status = marked.status
			assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(plan(attempt(0).after(test.after))).Delete)

			given := plan(see(job, nil).after(test.after + time.Second))

			due := builders.Noon.Add(test.after + 30*time.Second)
			assert.Equal(t, &mlv1.AdmissionStatus{QueuedTime: queued, RetryTime: &metav1.Time{Time: due}, FailedStarts: 1}, given.status.Admission, "it keeps its age")
			assert.Equal(t, mlv1.StateSuspended, given.status.State)
			for _, kind := range []string{"Admitted", "Suspended"} {
				assert.Contains(t, messageOf(given, kind), test.message)
				assert.Contains(t, messageOf(given, kind), "is queued again at "+due.UTC().Format(time.RFC3339))
			}
			assert.Equal(t, "False "+test.reason, outlineOf(given).Conditions["Admitted"])
			assert.Equal(t, "True "+test.reason, outlineOf(given).Conditions["Suspended"])
			assert.Equal(t, 29*time.Second, given.again)
			job.Status = given.status
			assert.Equal(t, queueing.Uninvolved, admissionState(job), "the queue gives it no place during the pause")
			assert.Equal(t, given.status, plan(see(job, nil).after(test.after+2*time.Second)).status)

			over := plan(see(job, nil).after(test.after + 30*time.Second))
			job.Status = over.status
			assert.Equal(t, queueing.Waiting, admissionState(job))
			assert.Equal(t, queued, job.Status.Admission.QueuedTime)

			job.Status = plan(see(job, nil).after(time.Hour).decided(admittedTo("a", "b"))).status
			job.Status = plan(attempt(time.Hour).after(time.Hour + test.after)).status
			assert.Equal(t, builders.Noon.Add(time.Hour+test.after+time.Minute), job.Status.Admission.RetryTime.Time, "the pause has doubled")
		})
	}
}

func TestAPlaceIsKeptWhileAnEarlierAttemptEnds(t *testing.T) {
	job := trainingInQueue(t, inQueue("bert"))
	workers := builders.Workers(job).Obj()
	job.Status.State, job.Status.Reason, job.Status.RestartCount = mlv1.StateRestarting, reasons.ProgramFailed, 1
	d := plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Obj()).after(time.Hour))
	assert.Empty(t, d.status.Admission.Releasing)
	assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(d).Delete)
}

func TestAPlaceIsKeptWhileACheckpointIsRestored(t *testing.T) {
	job := admittedJob(inQueue("bert").Workers(1), "a")
	workers := builders.Workers(job).Obj()
	restoring := builders.Pod(workers, 0).On("a").InitRunning(report.RestoreContainer).Obj()
	assert.Empty(t, plan(see(job, workers, restoring).after(time.Hour)).status.Admission.Releasing)
}

func TestAJobIsEvictedWhenTheJobOfItsWorkersIsRefused(t *testing.T) {
	o := see(admittedJob(inQueue("bert"), "a", "b"), nil)
	d := refused(o, reasons.ResourceQuotaExceeded, "exceeded quota: count/jobs.batch=0", false)
	assert.Contains(t, d.status.Admission.Releasing, "exceeded quota: count/jobs.batch=0; the job is evicted from AIJobQueue research")
	assert.Equal(t, "False ResourceQuotaExceeded", outlineOf(d).Conditions["Admitted"])

	o.job.Status = d.status
	again := refused(o, reasons.ResourceQuotaExceeded, "exceeded quota", false)
	assert.EqualValues(t, 1, again.status.Admission.FailedStarts, "once")
}

// An API server or a webhook that does not answer once costs no job its place.
func TestAJobKeepsItsPlaceWhileAWriteFails(t *testing.T) {
	away := errors.New("the server is currently unable to handle the request")
	job := admittedJob(inQueue("bert"), "a", "b")
	o := see(job, nil)
	for _, after := range []time.Duration{0, time.Minute, 5*time.Minute - time.Second} {
		o := o.after(after)
		d := afterApply(o, plan(o), away)
		assert.Empty(t, d.status.Admission.Releasing)
		assert.Equal(t, "False WriteFailed", outlineOf(d).Conditions["ChildrenApplied"])
		job.Status = d.status
	}
	o = o.after(5 * time.Minute)
	d := afterApply(o, plan(o), away)
	assert.Contains(t, d.status.Admission.Releasing, "the job is evicted from AIJobQueue research")
}

func TestAnEvictionTellsNoSecret(t *testing.T) {
	job := admittedJob(inQueue("bert").Spec(func(spec *mlv1.TrainingJobSpec) {
		spec.Env = []corev1.EnvVar{{Name: "API_KEY", Value: "mysecretvalue"}}
	}), "a", "b")
	o := see(job, nil)
	d := refused(o, reasons.ResourceQuotaExceeded, "a webhook denied API_KEY mysecretvalue and https://bob:hunter2@registry.example.com", false)
	require.Contains(t, d.status.Admission.Releasing, "mysecretvalue")
	hideSecrets(o.job, &d.status)
	assert.NotContains(t, fmt.Sprintf("%+v", d.status.Admission), "mysecretvalue")
	assert.NotContains(t, fmt.Sprintf("%+v", d.status.Admission), "hunter2")
}

func TestAChangeOfTheSpecEndsThePause(t *testing.T) {
	job := waitingJob(inQueue("bert"))
	job.Status.Admission.RetryTime = &metav1.Time{Time: builders.Noon.Add(time.Hour)}
	assert.NotNil(t, plan(see(job, nil)).status.Admission.RetryTime)
	job.Generation++
	assert.Nil(t, plan(see(job, nil)).status.Admission.RetryTime)
}

func TestWorkersThatRunEndTheRowOfFailedStarts(t *testing.T) {
	job := admittedJob(inQueue("bert"), "a", "b")
	job.Status.Admission.FailedStarts = 5
	d := plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...))
	require.Equal(t, mlv1.StateRunning, d.status.State)
	assert.Zero(t, d.status.Admission.FailedStarts)
	assert.True(t, build.IsAdmitted(&d.status))
}
