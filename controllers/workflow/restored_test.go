package workflow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

func TestARestoredWorkflowGoesOnWithTheStagesThatHadNotEnded(t *testing.T) {
	w := diamond()
	w.settle()
	w.at(time.Second).yields("read", "out", "words", "score", "7")
	w.settle()
	w.is("left", aiplatformv1alpha1.AIJobRunning)
	w.settle()
	require.Equal(t, "Running: read Succeeded left Running right Pending publish Pending", phases(w.workflow.Status))
	require.Equal(t, w.workflow.UID, w.workflow.Status.UID)
	w.workflow.Status.LastEventVersion = "4711"

	w.workflow.UID, w.jobs = "another", map[string]*aiplatformv1alpha1.AIJob{}
	before := w.workflow.Status.DeepCopy()
	assert.Equal(t, []string{"create left INPUT_TEXT=words", "create right"}, w.settle(), "what the first reported is kept")
	assert.Equal(t, "another", string(w.workflow.Status.UID))
	assert.Empty(t, w.workflow.Status.LastEventVersion, "the events of another cluster are counted otherwise")
	assert.Equal(t, reasons.RestoredFromBackup, eventsOf(before, &w.workflow.Status)[0].Reason)

	w.yields("left", "out", "L", "score", "1")
	w.yields("right", "out", "R", "score", "1")
	w.settle()
	w.yields("publish", "out", "done", "score", "1")
	w.settle()
	assert.Equal(t, aiplatformv1alpha1.WorkflowSucceeded, w.workflow.Status.Phase)
	assert.Equal(t, int32(1), w.workflow.Status.Run)
}

func TestARestoredWorkflowThatHadEndedDoesNotRunAgain(t *testing.T) {
	w := worldOf(stage("read"))
	w.settle()
	w.yields("read", "out", "words", "score", "7")
	w.settle()
	require.Equal(t, aiplatformv1alpha1.WorkflowSucceeded, w.workflow.Status.Phase)

	w.workflow.UID, w.jobs = "another", map[string]*aiplatformv1alpha1.AIJob{}
	assert.Empty(t, w.settle())
	assert.Equal(t, aiplatformv1alpha1.WorkflowSucceeded, w.workflow.Status.Phase)
	assert.Equal(t, "words", w.workflow.Status.Results["read.out"])
}
