package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAJobThatIsBeingDeletedIsCancelled(t *testing.T) {
	w := worldOf(job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](0) })).running("a")
	w.job.DeletionTimestamp = &metav1.Time{Time: builders.Noon}
	w.job.Status = plan(w.observed).status
	assert.Equal(t, "Cancelled Cancelled", short(w.job.Status))
	assert.Equal(t, "the AIJob is being deleted", w.job.Status.Message)
	assert.Equal(t, "stop infer-0-0", steps(plan(w.observed)))

	w.pods = nil
	w.job.Status = plan(w.at(time.Hour).observed).status
	assert.Empty(t, w.job.Status.Assignments)
	assert.Empty(t, steps(plan(w.observed)), "it is not deleted once more")

	w.job.Status.Phase, w.job.Annotations = aiplatformv1alpha1.AIJobDeadLetter, map[string]string{aiplatformv1alpha1.AnnotationRequeue: "true"}
	assert.Equal(t, aiplatformv1alpha1.AIJobDeadLetter, plan(w.observed).status.Phase, "it does not come back")
}

// A finalizer, as tools that deploy put on, keeps the object while the job must end.
func TestAPIAJobWithAFinalizerEndsWhenItIsDeleted(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	run := c.submit(job())
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	finalizers := func(all ...string) { c.patch(run, map[string]any{"metadata": map[string]any{"finalizers": all}}) }
	finalizers("example.com/keep")
	require.NoError(t, c.Delete(t.Context(), run))
	c.reach(run, "Cancelled", func(s *aiplatformv1alpha1.AIJobStatus) bool {
		return s.Phase == aiplatformv1alpha1.AIJobCancelled && len(s.Assignments) == 0
	})
	assert.Equal(t, "the AIJob is being deleted", run.Status.Message)
	assert.Empty(t, c.pods())
	_, state := Source(workerdefaults.Defaults{}, nil).Job(run)
	assert.Equal(t, queueing.Uninvolved, state)
	c.unchanged(m, run)
	finalizers()
}
