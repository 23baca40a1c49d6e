package workflow

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// diamond is read, then two beside each other, then publish.
func diamond() *world {
	w := worldOf(stage("read"), stage("left", "read"), stage("right", "read"), stage("publish", "left", "right"))
	w.workflow.Spec.Inputs = map[string]aiplatformv1alpha1.ParameterValue{"document": "a.txt"}
	w.workflow.Spec.Stages[0].Inputs = map[string]aiplatformv1alpha1.ParameterValue{"text": "$(inputs.document)"}
	w.workflow.Spec.Stages[1].Inputs = map[string]aiplatformv1alpha1.ParameterValue{"text": "$(stages.read.outputs.out)"}
	w.workflow.Spec.Stages[3].Inputs = map[string]aiplatformv1alpha1.ParameterValue{
		"text": "$(stages.left.outputs.out) and $(stages.right.outputs.out)",
	}
	return w
}

func TestAWorkflowRunsItsStagesInOrder(t *testing.T) {
	w := diamond()

	first := w.step()
	assert.Empty(t, steps(first), "the start is written before anything is made")
	assert.Equal(t, int32(1), first.status.Run)
	assert.Equal(t, []string{"create read INPUT_TEXT=a.txt"}, w.settle())
	assert.Equal(t, "Running: read Pending left Pending right Pending publish Pending", phases(w.workflow.Status))

	w.is("read", aiplatformv1alpha1.AIJobQueued, "InsufficientCapacity", "2 GPUs are missing")
	assert.Empty(t, w.settle())
	assert.Equal(t, "stage read: queued (InsufficientCapacity)", w.workflow.Status.Message)
	assert.Equal(t, "read", w.workflow.Status.CurrentStage)

	w.at(time.Second).is("read", aiplatformv1alpha1.AIJobRunning)
	assert.Empty(t, w.settle())
	assert.Equal(t, "Running: read Running left Pending right Pending publish Pending", phases(w.workflow.Status))
	assert.Equal(t, "stage read runs", w.workflow.Status.Message)
	assert.Equal(t, "0/4", w.workflow.Status.Progress)

	w.at(5*time.Second).yields("read", "out", "words of $(HOME)", "score", "7", "extra", "x")
	assert.Equal(t, []string{"create left INPUT_TEXT=words of $$(HOME)", "create right"}, w.settle(),
		"both at once, and a value is what the container sees")
	assert.Equal(t, map[string]string{"read.out": "words of $(HOME)", "read.score": "7"}, w.workflow.Status.Results)

	w.is("left", aiplatformv1alpha1.AIJobRunning)
	w.at(9*time.Second).yields("right", "out", "R", "score", "1")
	assert.Empty(t, w.settle(), "publish waits for both")
	w.yields("left", "out", "L", "score", "1")
	assert.Equal(t, []string{"create publish INPUT_TEXT=L and R"}, w.settle())
	w.at(20*time.Second).yields("publish", "out", "done", "score", "1")
	assert.Empty(t, w.settle())

	status := w.workflow.Status
	assert.Equal(t, "Succeeded: read Succeeded left Succeeded right Succeeded publish Succeeded", phases(status))
	assert.Equal(t, map[string]string{"Ready": "True Ready", "Complete": "True StagesEnded"}, reasonsOf(status))
	assert.Equal(t, "4 of 4 stages succeeded", status.Message)
	assert.Equal(t, "4/4", status.Progress)
	assert.Empty(t, status.CurrentStage)
	assert.Equal(t, builders.Noon.Add(20*time.Second), status.CompletionTime.Time)
	assert.Equal(t, "✔ read           Succeeded in 4s", status.Graph[0])
	assert.Zero(t, w.step().again, "nothing is left to wait for")
}

func TestTheJobOfAStage(t *testing.T) {
	w := worldOf(stage("read"))
	w.workflow.Spec.QueueName, w.workflow.Spec.Priority = "gpus", ptr.To[int32](70)
	w.workflow.Annotations = map[string]string{aiplatformv1alpha1.AnnotationUser: "jane"}
	agent := &w.agents["reader"].Spec
	agent.Command, agent.Args, agent.TimeoutSeconds = []string{"read"}, []string{"--fast"}, ptr.To[int64](60)
	agent.Env = []corev1.EnvVar{{Name: "MODEL", Value: "small"}}
	agent.Resources = &corev1.ResourceRequirements{}
	w.settle()

	job := w.job("read")
	assert.Equal(t, "team", job.Namespace)
	assert.Equal(t, map[string]string{
		"aiplatform.example.com/workflow": "digest", "aiplatform.example.com/stage": "read", "aiplatform.example.com/workflow-run": "1",
	}, job.Labels)
	assert.Equal(t, "jane", job.Annotations[aiplatformv1alpha1.AnnotationUser], "whose limits count")
	require.Len(t, job.OwnerReferences, 1)
	assert.Equal(t, "AgentWorkflow", job.OwnerReferences[0].Kind)
	assert.Equal(t, w.workflow.UID, job.OwnerReferences[0].UID)
	assert.Empty(t, cmp.Diff(aiplatformv1alpha1.AIJobSpec{
		JobType: "inference", Priority: ptr.To[int32](70), QueueName: "gpus", Image: "registry.example.com/agents/reader:1",
		Command: []string{"read"}, Args: []string{"--fast"}, TimeoutSeconds: ptr.To[int64](60), Resources: &corev1.ResourceRequirements{},
		Env:         []corev1.EnvVar{{Name: "MODEL", Value: "small"}, {Name: "INPUT_TEXT", Value: "nothing"}},
		RetryPolicy: aiplatformv1alpha1.RetryPolicy{MaxRetries: ptr.To[int32](2)},
	}, job.Spec))
}

func TestJobNames(t *testing.T) {
	w := worldOf()
	seen := map[string]bool{}
	for _, name := range []string{"digest", "a", "2nd", "a-" + strings.Repeat("b", 61), strings.Repeat("c-", 31) + "c"} {
		for _, run := range []int32{1, 2, 2147483647} {
			for _, stage := range []aiplatformv1alpha1.StageName{"read", "1", "r-2", aiplatformv1alpha1.StageName(strings.Repeat("s-", 19) + "ss")} {
				w.workflow.Name = name
				got := jobName(w.workflow, run, stage)
				assert.Regexp(t, `^[a-z]([-a-z0-9]*[a-z0-9])?$`, got)
				assert.LessOrEqual(t, len(got), 50, got)
				assert.NotContains(t, got, "--")
				assert.False(t, seen[got], got)
				assert.Equal(t, got, jobName(w.workflow, run, stage))
				seen[got] = true
			}
		}
	}
	w.workflow.Name = "digest"
	before := jobName(w.workflow, 1, "read")
	assert.Regexp(t, "^digest-1-read-[0-9a-f]{8}$", before)
	w.workflow.UID = "of another of this name"
	assert.NotEqual(t, before, jobName(w.workflow, 1, "read"))
}

func TestConditions(t *testing.T) {
	w := diamond()
	w.workflow.Spec.Stages[1].Condition = "double(stages.read.outputs.score) > 0.9"
	w.settle()
	w.yields("read", "out", "x", "score", "0.5")
	assert.Equal(t, []string{"create right"}, w.settle())
	assert.Equal(t, "Running: read Succeeded left Skipped (its condition is false) right Pending publish Skipped (stage left was skipped)",
		phases(w.workflow.Status))
	w.yields("right", "out", "x")
	w.settle()
	assert.Equal(t, "Succeeded: read Succeeded left Skipped (its condition is false) right Succeeded (did not report score) "+
		"publish Skipped (stage left was skipped)", phases(w.workflow.Status))
	assert.Equal(t, "2 of 4 stages succeeded, 2 skipped", w.workflow.Status.Message)
}

func TestWhatCannotBeEvaluatedFailsTheWorkflow(t *testing.T) {
	tests := map[string]struct {
		set  func(*aiplatformv1alpha1.Stage)
		want string
	}{
		"a condition on a text that is no number": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "double(stages.read.outputs.score) > 0.9" },
			"stage left failed: spec.stages[1].condition: cannot be evaluated: type conversion error from 'string' to 'double'",
		},
		"an output that was not reported": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["text"] = "$(stages.read.outputs.out)" },
			"stage left failed: spec.stages[1].inputs: input text: stage read did not report the output out: its container must " +
				"write a JSON object with that name to /dev/termination-log",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := diamond()
			test.set(&w.workflow.Spec.Stages[1])
			w.settle()
			w.yields("read", "score", "high")
			assert.Empty(t, w.settle(), "nothing more is begun")
			status := w.workflow.Status
			assert.Equal(t, aiplatformv1alpha1.WorkflowFailed, status.Phase)
			assert.Equal(t, "True StageFailed", reasonsOf(status)["Failed"])
			assert.Equal(t, test.want, status.Message)
			assert.Equal(t, aiplatformv1alpha1.StageSkipped, status.Stages[2].Phase)
		})
	}
}

func TestAFailedStageStopsTheOthers(t *testing.T) {
	for _, phase := range []aiplatformv1alpha1.AIJobPhase{"Failed", "DeadLetter", "Cancelled"} {
		t.Run(string(phase), func(t *testing.T) {
			w := diamond()
			w.settle()
			w.yields("read", "out", "x", "score", "1")
			w.settle()
			w.is("right", aiplatformv1alpha1.AIJobRunning)
			w.is("left", phase, "RetriesExhausted", "exit code 1")
			assert.Equal(t, []string{"stop right"}, w.settle(), "once")
			status := w.workflow.Status
			assert.Equal(t, "Running: read Succeeded left Failed (its AIJob ended as "+string(phase)+" (RetriesExhausted): exit code 1) "+
				"right Running (is being stopped) publish Skipped (the workflow is failing)", phases(status))
			assert.Equal(t, "False StageFailed", reasonsOf(status)["Failed"], "not before all have ended")

			w.is("right", aiplatformv1alpha1.AIJobCancelled, "Cancelled", "spec.cancel is true")
			assert.Empty(t, w.settle())
			status = w.workflow.Status
			assert.Equal(t, aiplatformv1alpha1.WorkflowFailed, status.Phase)
			assert.Equal(t, "True StageFailed", reasonsOf(status)["Failed"])
			assert.Equal(t, "stage left failed: its AIJob ended as "+string(phase)+" (RetriesExhausted): exit code 1", status.Message,
				"the cause is what is told, not what followed from it")
			assert.Equal(t, map[string]string{"read.out": "x", "read.score": "1"}, status.Results, "what has succeeded stays")
		})
	}
}

func TestRetriesAreToldAndNotYetFailures(t *testing.T) {
	w := worldOf(stage("read"))
	w.settle()
	w.is("read", aiplatformv1alpha1.AIJobRetrying, "BackOff", "exit code 1")
	w.settle()
	assert.Equal(t, "Running: read Running (waiting for retry: Retrying (BackOff): exit code 1)", phases(w.workflow.Status))
	w.is("read", aiplatformv1alpha1.AIJobRunning)
	w.job("read").Status.RetryCount = 1
	w.settle()
	assert.Equal(t, "Running: read Running (try 2)", phases(w.workflow.Status))
	w.yields("read", "out", "x", "score", "1")
	w.settle()
	assert.Equal(t, "Succeeded: read Succeeded", phases(w.workflow.Status))
}

func TestTimeout(t *testing.T) {
	w := diamond()
	w.workflow.Spec.TimeoutSeconds = ptr.To[int64](60)
	w.settle()
	w.is("read", aiplatformv1alpha1.AIJobRunning)
	assert.Equal(t, 60*time.Second, w.step().again)
	assert.Equal(t, 10*time.Second, w.at(50*time.Second).step().again)

	w.at(time.Minute)
	assert.Equal(t, []string{"stop read"}, w.settle())
	assert.Equal(t, aiplatformv1alpha1.WorkflowRunning, w.workflow.Status.Phase)
	w.is("read", aiplatformv1alpha1.AIJobCancelled)
	w.settle()
	assert.Equal(t, aiplatformv1alpha1.WorkflowFailed, w.workflow.Status.Phase)
	assert.Equal(t, "True DeadlineExceeded", reasonsOf(w.workflow.Status)["Failed"])

	late := diamond()
	late.workflow.Spec.Stages, late.workflow.Spec.TimeoutSeconds = late.workflow.Spec.Stages[:1], ptr.To[int64](60)
	late.settle()
	late.at(time.Hour).yields("read", "out", "x", "score", "1")
	late.settle()
	assert.Equal(t, aiplatformv1alpha1.WorkflowSucceeded, late.workflow.Status.Phase, "what has ended is not stopped for being seen late")
}

// Objects that were stored before the field had a maximum.
func TestATimeLimitOfAges(t *testing.T) {
	w := diamond()
	w.workflow.Spec.TimeoutSeconds = ptr.To[int64](math.MaxInt64)
	for _, agent := range w.agents {
		agent.Spec.TimeoutSeconds = ptr.To[int64](math.MaxInt64)
	}
	w.settle()
	w.is("read", aiplatformv1alpha1.AIJobRunning)
	assert.Equal(t, aiplatformv1alpha1.MaxTimeoutSeconds, *w.job("read").Spec.TimeoutSeconds, "or the API server would refuse it")
	w.at(time.Hour).settle()
	assert.Equal(t, aiplatformv1alpha1.WorkflowRunning, w.workflow.Status.Phase)
	assert.Equal(t, aiplatformv1alpha1.AIJobRunning, w.job("read").Status.Phase)
}

func TestAJobThatIsDeletedIsNotMadeAgain(t *testing.T) {
	w := worldOf(stage("read"), stage("left", "read"))
	w.settle()
	delete(w.jobs, w.job("read").Name)
	assert.Empty(t, w.settle())
	assert.Equal(t, aiplatformv1alpha1.WorkflowFailed, w.workflow.Status.Phase)
	assert.Contains(t, w.workflow.Status.Message, "was deleted before it ended")
}

func TestAJobMadeBeforeACrashIsNotMadeAgain(t *testing.T) {
	w := worldOf(stage("read"))
	w.step()
	known := w.workflow.Status.DeepCopy()
	w.step()
	w.workflow.Status = *known // the job was made, and that was not written
	assert.Empty(t, w.settle())
	assert.Equal(t, w.job("read").Name, w.workflow.Status.Stages[0].JobName)
}

func TestAJobFoundAfterItsStageWasSkippedIsStopped(t *testing.T) {
	w := worldOf(stage("read"), stage("left"))
	w.settle()
	hidden := w.job("left")
	w.workflow.Status.Stages[1].JobName = ""
	delete(w.jobs, hidden.Name)
	w.is("read", aiplatformv1alpha1.AIJobFailed)
	assert.Empty(t, w.settle())
	w.jobs[hidden.Name] = hidden
	assert.Equal(t, []string{"stop left"}, w.settle())
}

func TestNothingStartsWithAMistake(t *testing.T) {
	w := diamond()
	w.workflow.Spec.Stages[3].Agent = "writer"
	w.workflow.Spec.Stages[3].Condition = "so wrong"
	assert.Empty(t, w.settle())
	status := w.workflow.Status
	assert.Equal(t, aiplatformv1alpha1.WorkflowPending, status.Phase)
	assert.Equal(t, map[string]string{"Ready": "False AgentNotFound"}, reasonsOf(status))
	assert.Equal(t, "spec.stages[3].agent: Agent writer does not exist in namespace team: create it or correct the name", status.Message)

	w.agents["writer"] = agentNamed("writer")
	assert.Empty(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "False InvalidReference"}, reasonsOf(w.workflow.Status))
	w.workflow.Spec.Stages[3].Condition = ""
	assert.NotEmpty(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "True Ready"}, reasonsOf(w.workflow.Status))
}

func TestAnAgentThatGoesWhileTheWorkflowRunsHoldsItsStageBack(t *testing.T) {
	w := worldOf(stage("read"), stage("left", "read"))
	w.workflow.Spec.Stages[1].Agent = "writer"
	w.agents["writer"] = agentNamed("writer")
	w.settle()
	delete(w.agents, "writer")
	w.yields("read", "out", "x", "score", "1")
	assert.Empty(t, w.settle())
	assert.Contains(t, w.workflow.Status.Message, "stage left: spec.stages[1].agent: Agent writer does not exist")
	w.agents["writer"] = agentNamed("writer")
	assert.Equal(t, []string{"create left"}, w.settle())
	assert.Empty(t, w.workflow.Status.Stages[1].Message)
}

func TestAStageStaysWhatItIs(t *testing.T) {
	w := worldOf(stage("read"), stage("left", "read"))
	w.settle()
	w.yields("read", "out", "x", "score", "1")
	w.settle()
	w.is("read", aiplatformv1alpha1.AIJobQueued) // a user requeued it
	w.settle()
	assert.Equal(t, aiplatformv1alpha1.StageSucceeded, w.workflow.Status.Stages[0].Phase)
	delete(w.jobs, w.job("read").Name)
	assert.Empty(t, w.settle())
	assert.Equal(t, aiplatformv1alpha1.WorkflowRunning, w.workflow.Status.Phase)
	assert.Nil(t, meta.FindStatusCondition(w.workflow.Status.Conditions, "Failed"))
}
