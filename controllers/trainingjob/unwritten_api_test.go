package trainingjob

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// unwritten says whether a job tells that a child could not be written, in a state.
func unwritten(state mlv1.State, reason string) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		is := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionChildrenApplied)
		return job.Status.State == state && is != nil && is.Status == metav1.ConditionFalse && is.Reason == reason
	}
}

func written(job *mlv1.TrainingJob) bool {
	return meta.IsStatusConditionTrue(job.Status.Conditions, reasons.ConditionChildrenApplied)
}

func TestAPIAServiceThatCannotBeWrittenDoesNotFreezeTheStatus(t *testing.T) {
	c := newCluster(t)
	m := c.start(&crash.Cut{Method: http.MethodPost, Path: "/services", Refused: true})
	job := c.submit(builders.TrainingJob("bert").Workers(2))

	waits := c.await(job, "told what cannot be written", unwritten(mlv1.StateInitializing, reasons.WriteFailed))
	assert.Contains(t, reporting.Message(waits.Status.Conditions, reasons.ConditionChildrenApplied), "Service bert-headless")
	assert.Contains(t, reporting.Message(waits.Status.Conditions, reasons.ConditionChildrenApplied), "the webhook does not answer")
	assert.Equal(t, reporting.Message(waits.Status.Conditions, reasons.ConditionChildrenApplied), waitingMessage(&waits.Status))
	c.run(c.startPods(c.workers(job, 0))...)
	c.await(job, "running, and told what cannot be written", unwritten(mlv1.StateRunning, reasons.WriteFailed))
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "bert-config"}, &corev1.ConfigMap{}), "what can be written is")

	m.Heal()
	c.await(job, "told that all is written", written)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "bert-headless"}, &corev1.Service{}))
}

func TestAPIWorkersWaitForWhatTheyNeed(t *testing.T) {
	c := newCluster(t)
	m := c.start(&crash.Cut{Method: http.MethodPost, Path: "/serviceaccounts", Refused: true})
	job := c.submit(builders.TrainingJob("bert"))

	c.await(job, "told what cannot be written", unwritten(mlv1.StatePending, reasons.WriteFailed))
	for _, write := range m.Written() {
		assert.NotContains(t, write, "/jobs")
	}
	m.Heal()
	c.workers(job, 0)
}

func TestAPIAStrangersObjectDoesNotFreezeTheStatusOfARunningJob(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	pods := c.startPods(c.workers(job, 0))
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))
	c.settled(m, job)

	var settings corev1.ConfigMap
	c.change(&settings, build.ConfigName(job), func() { settings.OwnerReferences = nil })

	told := c.await(job, "the conflict in its status", unwritten(mlv1.StateRunning, reasons.ObjectConflict))
	assert.Contains(t, reporting.Message(told.Status.Conditions, reasons.ConditionChildrenApplied), "ConfigMap bert-config exists and does not belong to this TrainingJob")
	c.end(0, "", pods...)
	done := c.await(job, "Completed", state(mlv1.StateCompleted))
	assert.Nil(t, meta.FindStatusCondition(done.Status.Conditions, reasons.ConditionChildrenApplied), "which no longer matters")
}
