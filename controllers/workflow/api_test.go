package workflow

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clocktesting "k8s.io/utils/clock/testing"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// life runs a diamond of four stages, one is skipped, to its end. It returns the writes of the manager, which dies
// at the cut and is started again.
func life(t *testing.T, at *crash.Cut) []string {
	t.Helper()
	c := newCluster(t)
	c.agent("reader")
	m := c.start(at)
	w := diamond()
	w.workflow.Spec.Stages[2].Condition = "double(stages.read.outputs.score) < 0.5"
	w.workflow.Spec.Stages[3].DependsOn, w.workflow.Spec.Stages[3].Inputs = []aiplatformv1alpha1.StageName{"left"}, nil
	workflow := c.submit(w)
	alive := func() {
		if m.Crashed() {
			m.stop()
			m = c.start(nil)
		}
	}
	reach := func(what string, is func(*aiplatformv1alpha1.AgentWorkflowStatus) bool) {
		t.Helper()
		c.reach(workflow, what, func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
			alive()
			return is(s)
		})
	}
	for i, stage := range []int{0, 1, 3} {
		name := string(w.workflow.Spec.Stages[stage].Name)
		reach("at stage "+name, func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
			return len(s.Stages) == 4 && s.Stages[stage].JobName != ""
		})
		job := c.job(name)
		c.phase(job, aiplatformv1alpha1.AIJobRunning, "")
		reach("running stage "+name, func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
			return s.CurrentStage == name && s.Stages[stage].Phase == "Running"
		})
		c.phase(job, aiplatformv1alpha1.AIJobSucceeded, "", "out", fmt.Sprintf("o%d", i), "score", "0.7")
	}
	reach("Succeeded", in(aiplatformv1alpha1.WorkflowSucceeded))
	if at == nil {
		c.touch(m, workflow)
	}
	assert.Equal(t, "Succeeded: read Succeeded left Succeeded right Skipped (its condition is false) publish Succeeded", phases(workflow.Status))
	assert.Equal(t, map[string]string{
		"read.out": "o0", "read.score": "0.7", "left.out": "o1", "left.score": "0.7", "publish.out": "o2", "publish.score": "0.7",
	}, workflow.Status.Results)
	assert.Equal(t, int32(1), workflow.Status.Run)
	assert.Equal(t, []corev1.EnvVar{{Name: "INPUT_TEXT", Value: "o0"}}, c.job("left").Spec.Env)
	c.jobs("1")
	assert.Len(t, c.made, 3)
	for stage, uids := range c.made {
		assert.Len(t, uids, 1, "stage %s was started more than once", stage)
	}
	return m.Written()
}

func TestAPIALifeSurvivesACrashAtAnyWrite(t *testing.T) {
	t.Parallel()
	writes := life(t, nil)
	t.Logf("%d writes: %q", len(writes), writes)
	require.GreaterOrEqual(t, len(writes), 10)
	assert.LessOrEqual(t, len(writes), 3+1+3*2+1+2, "three AIJobs; the start, two for each of the three, the end; and two for the touch")
	crash.AtEachWrite(t, len(writes)-2, func(t *testing.T, at *crash.Cut) { life(t, at) })
}

func TestAPIAFailureStopsTheOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("reader")
	m := c.start(nil)
	workflow := c.submit(worldOf(stage("left"), stage("right"), stage("after", "right")))
	left, right := c.job("left"), c.job("right")
	c.phase(right, aiplatformv1alpha1.AIJobRunning, "")
	c.phase(left, aiplatformv1alpha1.AIJobDeadLetter, reasons.RetriesExhausted)
	await(t, "the other being cancelled", func() bool { return ptr.Deref(c.job("right").Spec.Cancel, false) })
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(right), right))
	c.phase(right, aiplatformv1alpha1.AIJobCancelled, reasons.Cancelled)
	c.reach(workflow, "Failed", in(aiplatformv1alpha1.WorkflowFailed))
	assert.Equal(t, "stage left failed: its AIJob ended as DeadLetter (RetriesExhausted)", workflow.Status.Message)
	assert.Equal(t, map[string]string{"Ready": "True Ready", "Failed": "True StageFailed"}, reasonsOf(workflow.Status))
	c.touch(m, workflow)
	assert.Equal(t, "Normal Started run 1 started", <-m.events.Events)
}

func TestAPIAMistakeIsToldBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(nil)
	w := worldOf(stage("read"), stage("left", "read"))
	w.workflow.Spec.Stages[1].Condition = "stages.read.outputs.score > 0.9"
	workflow := c.submit(w)
	reason := func(want string) func(*aiplatformv1alpha1.AgentWorkflowStatus) bool {
		return func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool { return reasonsOf(*s)["Ready"] == want }
	}
	c.reach(workflow, "without its Agent", reason("False AgentNotFound"))
	c.agent("reader")
	c.reach(workflow, "wrong", reason("False InvalidReference"))
	assert.Equal(t, "spec.stages[1].condition: column 27: found no matching overload for '_>_' applied to '(string, double)'", workflow.Status.Message)
	c.touch(m, workflow)
	assert.Empty(t, c.jobs("1"))

	patched := workflow.DeepCopy()
	patched.Spec.Stages[1].Condition = "double(stages.read.outputs.score) > 0.9"
	require.NoError(t, c.Patch(t.Context(), patched, client.MergeFrom(workflow)))
	c.reach(workflow, "Running", in(aiplatformv1alpha1.WorkflowRunning))
	c.job("read")

	// What stands in the schema: stages that run are not changed.
	patched = workflow.DeepCopy()
	patched.Spec.Stages[1].Condition = ""
	assert.ErrorContains(t, c.Patch(t.Context(), patched, client.MergeFrom(workflow)), "cannot be changed while the workflow runs")
}

func TestAPIAnAIJobThatCannotBeWrittenDoesNotFreezeTheStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("reader")
	m := c.start(&crash.Cut{Method: http.MethodPost, Path: "/aijobs", Refused: true})
	workflow := c.submit(worldOf(stage("read")))

	c.reach(workflow, "told what cannot be written", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
		return s.Run == 1 && meta.IsStatusConditionFalse(s.Conditions, reasons.ConditionChildrenApplied) && s.Stages[0].Message != ""
	})
	assert.Equal(t, aiplatformv1alpha1.WorkflowRunning, workflow.Status.Phase)
	assert.Contains(t, workflow.Status.Stages[0].Message, "create AIJob ")
	m.Heal()
	c.reach(workflow, "told that all is written", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
		return s.Stages[0].JobName != "" && meta.IsStatusConditionTrue(s.Conditions, reasons.ConditionChildrenApplied)
	})
}

func TestAPIWhatTheAPIServerRefusesFailsTheStage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("reader")
	workflow := c.submit(worldOf(stage("read")))
	stranger := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: jobName(workflow, 1, "read"), Namespace: c.namespace}}
	stranger.Spec = aiplatformv1alpha1.AIJobSpec{JobType: aiplatformv1alpha1.JobInference, Image: "registry.example.com/other:1"}
	require.NoError(t, c.Create(t.Context(), stranger))
	c.start(nil)
	c.reach(workflow, "Failed", in(aiplatformv1alpha1.WorkflowFailed))
	assert.Contains(t, workflow.Status.Message, "AIJob "+stranger.Name+" exists and does not belong to this AgentWorkflow")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(stranger), stranger))
	assert.Nil(t, stranger.Spec.Cancel, "the object of another owner is left alone")
}

func TestAPIAScheduleStartsAtItsTimes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("reader")
	now := clocktesting.NewFakePassiveClock(time.Now())
	m := c.startAt(nil, now)
	workflow := c.submit(worldOf(stage("read")).triggered("schedule", "schedule", "@hourly"))
	c.reach(workflow, "waiting", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool { return s.NextStartTime != nil })
	assert.Empty(t, c.jobs("1"))

	now.SetTime(workflow.Status.NextStartTime.Add(time.Second))
	m.triggers.queue.Add(requestFor(workflow)) // the real clock has not moved
	c.job("read")
	c.reach(workflow, "Running", in(aiplatformv1alpha1.WorkflowRunning))
	assert.Equal(t, int32(1), workflow.Status.Run)
	assert.True(t, workflow.Status.NextStartTime.After(now.Now()))
}

func TestAPIAnEventStartsAWorkflow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.agent("reader")
	m := c.start(nil)
	workflow := c.submit(worldOf(stage("read")).triggered("event", "kind", "ConfigMap", "reason", "NewData"))
	watches := func() int {
		m.triggers.mu.Lock()
		defer m.triggers.mu.Unlock()
		return len(m.triggers.watches)
	}
	await(t, "the watch of events", func() bool { return watches() == 1 })
	happen := func(kind, reason, name string, at time.Time) {
		t.Helper()
		require.NoError(t, c.Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "data-", Namespace: c.namespace},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: c.namespace, Name: name},
			Reason:         reason, Type: "Normal", LastTimestamp: metav1.NewTime(at),
		}))
	}
	happen("ConfigMap", "NewData", "old", time.Now().Add(-time.Hour))
	happen("Secret", "NewData", "other", time.Now().Add(time.Minute))
	happen("ConfigMap", "OldData", "other", time.Now().Add(time.Minute))
	at := time.Now().Add(2 * time.Minute).Truncate(time.Second)
	happen("ConfigMap", "NewData", "data", at)
	job := c.job("read")
	c.reach(workflow, "started by it", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool { return s.Run == 1 })
	assert.Equal(t, at.UTC(), workflow.Status.LastEventTime.UTC())
	c.phase(job, aiplatformv1alpha1.AIJobSucceeded, "", "out", "x", "score", "1")
	c.reach(workflow, "Succeeded", in(aiplatformv1alpha1.WorkflowSucceeded))
	c.touch(m, workflow)
	assert.Equal(t, int32(1), workflow.Status.Run, "once for an event")

	happen("ConfigMap", "NewData", "data", at.Add(time.Minute))
	c.reach(workflow, "started again", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool { return s.Run == 2 })
	require.NoError(t, c.Delete(t.Context(), workflow))
	await(t, "the end of the watch", func() bool { return watches() == 0 })
}
