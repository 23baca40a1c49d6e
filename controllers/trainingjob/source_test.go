package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func withCode() *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Source = &podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: "script"}}
	})
}

const fetchedCode = `{"source": {"digest": "sha256:1", "sizeBytes": 7, "files": 1}}`

func TestTheCodeOfTheFirstStartIsKept(t *testing.T) {
	job := withCode().Workers(2).Obj()
	workers := builders.Workers(job).Obj()
	fetched := func(replica int, message string) *corev1.Pod {
		return builders.Pod(workers, replica).InitEnded(source.Container, 0, message).Obj()
	}
	d := plan(see(job, workers, fetched(0, fetchedCode), fetched(1, fetchedCode)))
	want := &podtemplate.SourceStatus{From: "configmap://script", Digest: "sha256:1", SizeBytes: 7, Files: 1}
	assert.Equal(t, want, d.status.Source)

	job.Status = d.status
	other := plan(see(job, workers, fetched(0, fetchedCode), fetched(1, `{"source": {"digest": "sha256:2"}}`)))
	assert.Equal(t, mlv1.StateFailed, other.status.State)
	assert.Equal(t, reasons.SourceChanged, other.status.Reason)
	assert.Contains(t, other.status.FailureReason, "worker 1 (pod bert-training-1-a0) has fetched other code from configmap://script")
	assert.Equal(t, want, other.status.Source)

	edited := job.DeepCopy()
	edited.Spec.Source.ConfigMap.Name = "better"
	again := plan(see(edited, workers, fetched(0, `{"source": {"digest": "sha256:2"}}`)))
	assert.Equal(t, "configmap://better", again.status.Source.From, "an edit pins it again")
}

func TestCodeThatCannotBeFetched(t *testing.T) {
	problem := func(reason string) string {
		return `{"problem": {"reason": "` + reason + `", "message": "spec.source: said so"}}`
	}
	for name, test := range map[string]struct {
		code    int32
		message string
		state   mlv1.State
		reason  string
		says    string
		counted bool
	}{
		"never":               {65, problem(reasons.SourceInvalid), mlv1.StateFailed, reasons.SourceInvalid, "cannot fetch its code: spec.source: said so", true},
		"other code":          {65, problem(reasons.SourceChanged), mlv1.StateFailed, reasons.SourceChanged, "cannot fetch its code: spec.source: said so", true},
		"not there yet":       {66, problem(reasons.SourceNotFound), mlv1.StateRestarting, reasons.SourceNotFound, "cannot fetch its code: spec.source: said so", false},
		"no credentials":      {77, problem(reasons.SourceAccessDenied), mlv1.StateRestarting, reasons.SourceAccessDenied, "said so", false},
		"a program that died": {2, "panic: nil map", mlv1.StateRestarting, reasons.InitContainerFailed, "the container operator-source ended with exit code 2: panic: nil map", true},
	} {
		t.Run(name, func(t *testing.T) {
			job := withCode().Obj()
			workers := builders.Workers(job).Obj()
			d := plan(see(job, workers, builders.Pod(workers, 0).InitEnded(source.Container, test.code, test.message).FailedToInit().Obj()))
			assert.Equal(t, test.state, d.status.State)
			assert.Equal(t, test.reason, d.status.Reason)
			assert.Contains(t, d.status.FailureReason, test.says)
			assert.Equal(t, test.counted, d.status.LastFailure.Counted)
		})
	}
}

// A server that does not answer is asked ever more seldom, and uses up no backoff limit.
func TestCodeIsFetchedAgainAfterPauses(t *testing.T) {
	job := withCode().Obj()
	job.Status.State, job.Status.Reason = mlv1.StateRestarting, reasons.SourceUnreachable
	unreachable := mlv1.FailureStatus{Reason: reasons.SourceUnreachable}
	for times, want := range []time.Duration{10 * time.Second, 40 * time.Second, 160 * time.Second, 5 * time.Minute} {
		job.Status.LastFailure, job.Status.EarlierFailures = &unreachable, nil
		for range times {
			job.Status.EarlierFailures = append(job.Status.EarlierFailures, unreachable)
		}
		job.Status.RestartCount, job.Status.DisruptionCount = int32(times+1), int32(times+1)
		got := backoff(job)
		assert.GreaterOrEqual(t, got, want)
		assert.LessOrEqual(t, got, want+want/4)
	}
}

// The place in the queue is for others while the code cannot be fetched.
func TestAJobInAQueueLeavesItsPlaceWhileItsCodeCannotBeFetched(t *testing.T) {
	job := withCode().Spec(func(s *mlv1.TrainingJobSpec) { s.Scheduling = &mlv1.Scheduling{QueueName: "research"} }).Obj()
	job.Status.Admission = &mlv1.AdmissionStatus{
		AdmittedTime: ptr.To(metav1.NewTime(builders.Noon)), Assignments: []mlv1.NodeAssignment{{NodeName: "a", Workers: 1}},
	}
	workers := builders.Workers(job).Obj()
	message := `{"problem": {"reason": "SourceNotFound", "message": "spec.source.configMap.name: there is no ConfigMap script"}}`
	d := plan(see(job, workers, builders.Pod(workers, 0).InitEnded(source.Container, 66, message).FailedToInit().Obj()))
	assert.Contains(t, d.status.Admission.Releasing, "there is no ConfigMap script; the job is evicted from AIJobQueue research")
	assert.NotNil(t, d.status.Admission.RetryTime)
	assert.Equal(t, reasons.SourceNotFound, d.status.LastFailure.Reason)
}

func TestItIsToldThatCodeIsFetched(t *testing.T) {
	job := withCode().Obj()
	workers := builders.Workers(job).Obj()
	d := plan(see(job, workers, builders.Pod(workers, 0).InitRunning(source.Container).Obj()))
	assert.Equal(t, "worker 0 fetches its code from configmap://script", meta.FindStatusCondition(d.status.Conditions, reasons.ConditionInitialized).Message)
}
