package trainingjob

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const agentAddress = "http://10.0.0.10:9464"

// said is a report as a termination message.
func said(t *testing.T, r report.Report) string {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	return string(text)
}

// serving is what is observed while the agent serves a report.
func serving(o observed, r report.Report) observed {
	o.read.Report, o.read.Agent = &r, agentAddress
	return o
}

func stored(path string, step int64) *report.Checkpoint {
	return &report.Checkpoint{Path: path, Epoch: int32(step / 100), Step: step, SizeBytes: 4096, Time: builders.Noon.Add(1500 * time.Millisecond)}
}

func readyCondition(d desired) string {
	ready := meta.FindStatusCondition(d.status.Conditions, reasons.ConditionCheckpointReady)
	if ready == nil {
		return ""
	}
	return string(ready.Status) + " " + ready.Reason + ": " + ready.Message
}

func TestTheStatusSaysWhatIsInTheStorage(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Checkpoints())
	workers := builders.Workers(job).Obj()
	pod := builders.Pod(workers, 0).Running().InitRunning(report.AgentContainer).Obj()
	o := see(job, workers, pod)
	assert.Equal(t, agentAddress, plan(o).agent, "the agent is asked")

	o = serving(o, report.Report{
		Phase: report.PhaseSyncing, Newest: stored("/checkpoints/bert/uid-of-bert/checkpoint-epoch-3", 300), Kept: 2,
		Skipped: []report.Skipped{{Path: "/checkpoints/bert/uid-of-bert/checkpoint-epoch-4", Message: "state.pt has another SHA-256"}},
	})
	o.read.Figures = &progress.Figures{Checkpoint: newest("/checkpoints/bert/uid-of-bert/checkpoint-epoch-9", 900)}
	o.read.Time = builders.Noon

	d := plan(o)

	assert.Empty(t, cmp.Diff(&mlv1.CheckpointStatus{
		Path: "/bert/uid-of-bert/checkpoint-epoch-3", Epoch: 3, Step: 300, SizeBytes: 4096, Kept: 2, ClaimName: "bert-checkpoints",
		Time:    ptr.To(metav1.NewTime(builders.Noon.Add(time.Second))),
		Skipped: []mlv1.CheckpointSkipped{{Path: "/bert/uid-of-bert/checkpoint-epoch-4", Message: "state.pt has another SHA-256"}},
	}, d.status.Checkpoint))
	assert.Equal(t, "True StorageReady: checkpoints are kept on the claim bert-checkpoints", readyCondition(d))

	o.read.Agent = "http://10.0.0.99:9464"
	assert.Nil(t, plan(o).status.Checkpoint, "another attempt's agent is not believed")
}

func TestAProblemOfTheStorageIsACondition(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").InStorage(builders.S3Storage()))
	workers := builders.Workers(job).Obj()
	o := see(job, workers, builders.Pod(workers, 0).Running().InitRunning(report.AgentContainer).Obj())
	assert.Empty(t, readyCondition(plan(o)), "nothing is known before the agent has said something")

	problem := &report.Problem{Reason: report.ReasonBucketNotFound, Message: "there is no bucket models: create it", Since: builders.Noon}
	d := plan(serving(o, report.Report{Phase: report.PhaseSyncing, Problem: problem}))
	assert.Equal(t, "False BucketNotFound: there is no bucket models: create it", readyCondition(d))
	assert.Equal(t, mlv1.StateRunning, d.status.State, "the training goes on")

	job.Status = d.status
	assert.Equal(t, "True StorageReady: checkpoints are kept in the S3 bucket models",
		readyCondition(plan(serving(o, report.Report{Phase: report.PhaseSyncing}))), "it heals")

	lie := &report.Problem{Reason: "no reason at all", Message: strings.Repeat("x", 5000)}
	text := readyCondition(plan(serving(o, report.Report{Phase: report.PhaseSyncing, Problem: lie})))
	assert.Contains(t, text, "False StorageError: xxx", "the API server would refuse the other reason")
	assert.Less(t, len(text), 1100)

	crashing := builders.Pod(workers, 0).Running().InitWaiting(report.AgentContainer, "CrashLoopBackOff", "back-off 10s").Obj()
	assert.Contains(t, readyCondition(plan(see(job, workers, crashing))), "False CheckpointSidecarCrashing: ")
}

func TestARestoreThatWaitsIsWhatTheJobWaitsFor(t *testing.T) {
	job := builders.TrainingJob("bert").InStorage(builders.S3Storage()).Workers(2).ResumeFrom("latest").Obj()
	workers := builders.Workers(job).Obj()
	restoring := builders.Pod(workers, 0).At("10.0.0.10").InitRunning(report.RestoreContainer).Obj()
	o := see(job, workers, restoring, builders.Pod(workers, 1).Running().Obj())

	d := plan(o)
	assert.Equal(t, agentAddress, d.agent, "it is asked before the training runs")
	assert.Empty(t, d.scrape)

	d = plan(serving(o, report.Report{Phase: report.PhaseRestoring}))
	assert.Equal(t, reasons.WorkersStarting, d.status.Reason)
	assert.Equal(t, "replica 0 brings back a checkpoint", waitingMessage(&d.status))

	problem := &report.Problem{Reason: report.ReasonCredentialsMissing, Message: "there is no Secret keys", Since: builders.Noon}
	d = plan(serving(o, report.Report{Phase: report.PhaseRestoring, Problem: problem}))
	assert.Equal(t, mlv1.StateInitializing, d.status.State)
	assert.Equal(t, "CredentialsMissing", d.status.Reason)
	assert.Contains(t, waitingMessage(&d.status), "there is no Secret keys")
	assert.Equal(t, "False CredentialsMissing: there is no Secret keys", readyCondition(d))

	image := builders.Pod(workers, 0).InitWaiting(report.RestoreContainer, "ImagePullBackOff", "no such tag").Obj()
	assert.Equal(t, reasons.ImagePullFailed, plan(see(job, workers, image)).status.Reason)
}

func TestWhatWasRestoredIsKnownFromTheInitContainer(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Claim("shared").ResumeFrom("pvc://old/run"))
	job.Status.RestartCount = 2
	workers := builders.Workers(job).Attempt(2).Obj()
	message := said(t, report.Report{
		Phase: report.PhaseDone, Restored: stored("/resume/run/checkpoint-epoch-3", 300),
		Skipped: []report.Skipped{{Path: "/resume/run/checkpoint-epoch-4", Message: "truncated"}},
	})
	pod := builders.Pod(workers, 0).Running().InitEnded(report.RestoreContainer, 0, message).InitRunning(report.AgentContainer).Obj()
	o := serving(see(job, workers, pod), report.Report{Phase: report.PhaseSyncing})

	d := plan(o)
	assert.Empty(t, cmp.Diff(&mlv1.CheckpointStatus{
		RestoredFrom: "pvc://old/run/checkpoint-epoch-3", RestoredAttempt: 2,
		Skipped: []mlv1.CheckpointSkipped{{Path: "pvc://old/run/checkpoint-epoch-4", Message: "truncated"}},
	}, d.status.Checkpoint))

	job.Status = d.status
	job.Status.RestartCount = 3
	next := builders.Workers(job).Attempt(3).Obj()
	nothing := said(t, report.Report{Phase: report.PhaseDone})
	begun := builders.Pod(next, 0).Running().InitEnded(report.RestoreContainer, 0, nothing).InitRunning(report.AgentContainer).Obj()
	assert.Empty(t, plan(see(job, next, begun)).status.Checkpoint.RestoredFrom, "this attempt began at the first epoch")
}

func TestLastWordsOfTheAgent(t *testing.T) {
	trained := `{"training_epoch": 7, "training_checkpoint_path": "/checkpoints/bert/uid-of-bert/checkpoint-step-700",
		"training_checkpoint_epoch": 7, "training_checkpoint_step": 700}`
	job := runningJob(t, builders.TrainingJob("bert").InStorage(builders.S3Storage()))
	workers := builders.Workers(job).Obj()
	uploaded := said(t, report.Report{Phase: report.PhaseDone, Newest: stored("s3://models/x/checkpoint-step-700", 700), Kept: 3})
	problem := &report.Problem{Reason: report.ReasonStorageUnreachable, Message: "minio:9000 does not answer", Since: builders.Noon}
	failed := said(t, report.Report{Phase: report.PhaseDone, Newest: stored("s3://models/x/checkpoint-epoch-6", 600), Problem: problem})
	suspended := job.DeepCopy()
	suspended.Spec.Suspend = ptr.To(true)
	late := job.DeepCopy()
	late.Spec.FailurePolicy.ActiveDeadlineSeconds = ptr.To[int64](1)
	late.Status.StartTime = ptr.To(metav1.NewTime(builders.Noon.Add(-time.Hour)))

	for name, test := range map[string]struct {
		job   *mlv1.TrainingJob
		code  int32
		gone  bool
		agent string
		state mlv1.State
		step  int64
		ready string
	}{
		"the job is complete":                           {job, 0, false, uploaded, mlv1.StateCompleted, 700, "True StorageReady"},
		"the job is complete, its last checkpoint not":  {job, 0, false, failed, mlv1.StateCompleted, 600, "False CheckpointNotStored: the last checkpoint of the training, of epoch 7 and step 700, is not in the storage: minio:9000 does not answer"},
		"the job is suspended":                          {suspended, 143, true, uploaded, mlv1.StateSuspended, 700, "True StorageReady"},
		"the job is suspended without its checkpoint":   {suspended, 143, true, failed, mlv1.StateSuspended, 600, "False CheckpointNotStored"},
		"the job is suspended and the agent was killed": {suspended, 143, true, "", mlv1.StateSuspended, 0, "False CheckpointNotStored: the last checkpoint of the training, of epoch 7 and step 700, is not in the storage: the agent was stopped before"},
		"the job is past its deadline":                  {late, 143, true, uploaded, mlv1.StateFailed, 700, "True StorageReady"},
		"the job is past its deadline without it":       {late, 143, true, failed, mlv1.StateFailed, 600, "False CheckpointNotStored"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := builders.Pod(workers, 0).InitEnded(report.AgentContainer, 0, test.agent)
			if test.code == 0 {
				pod.Succeeded(trained)
			} else {
				pod.Failed(test.code).Saying(trained)
			}
			o := see(test.job, workers, pod.Obj())
			if test.gone {
				var heard finalMessages
				heard.note(pod.Obj())
				o = see(test.job, nil)
				o.final = heard.of(client.ObjectKeyFromObject(job))
			}
			d := plan(o)
			assert.Equal(t, test.state, d.status.State)
			step := int64(0)
			if d.status.Checkpoint != nil {
				step = d.status.Checkpoint.Step
			}
			assert.Equal(t, test.step, step)
			assert.Contains(t, readyCondition(d), test.ready)
		})
	}
}

func TestAJobEndsOnlyWhenItsAgentHas(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").InStorage(builders.S3Storage()))
	workers := builders.Workers(job).Obj()
	ended := builders.Pod(workers, 0).Succeeded("{}").Obj()
	ended.Status.Phase = corev1.PodRunning // until its sidecar has ended
	ended.Status.PodIP = "10.0.0.10"
	ended.Status.InitContainerStatuses = builders.Pod(workers, 0).InitRunning(report.AgentContainer).Obj().Status.InitContainerStatuses

	d := plan(see(job, workers, ended))

	assert.Equal(t, mlv1.StateRunning, d.status.State)
	assert.Equal(t, agentAddress, d.agent, "its progress is still followed")
	assert.Empty(t, d.scrape, "the worker's is not")
}

func TestAPodOfAnOlderOperatorHasNoAgent(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Checkpoints())
	workers := builders.Workers(job).Obj()
	o := see(job, workers, builders.Pod(workers, 0).Running().Obj())
	o.read.Figures = &progress.Figures{Checkpoint: newest("/checkpoints/bert/uid-of-bert/checkpoint-epoch-9", 900)}
	o.read.Time = builders.Noon

	d := plan(o)

	assert.Empty(t, d.agent)
	assert.Equal(t, "/bert/uid-of-bert/checkpoint-epoch-9", d.status.Checkpoint.Path, "the worker's own word counts")
	assert.Contains(t, readyCondition(d), "True StorageReady")
}

func TestAStoppedJobIsGivenTheTimeToStoreItsCheckpoint(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").InStorage(builders.S3Storage()))
	job.Spec.Suspend = ptr.To(true)
	workers := builders.Workers(job).Obj()
	pod := builders.Pod(workers, 0).Running().InitRunning(report.AgentContainer).Obj()

	d := plan(see(job, nil, pod))

	assert.Equal(t, 300*time.Second+podend.Overdue, d.again)
	assert.Equal(t, mlv1.StateRunning, d.status.State)
	assert.Equal(t, agentAddress, d.agent)
}

// newest is a checkpoint as a worker reports it.
func newest(path string, step int64) *progress.Checkpoint {
	return &progress.Checkpoint{Path: path, Epoch: int32(step / 100), Step: step}
}
