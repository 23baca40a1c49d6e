package trainingjob

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// told has nodes go since noon.
func (o observed) told(nodes ...string) observed {
	o.notices = map[string]nodenotice.Notice{}
	for _, name := range nodes {
		o.notices[name] = nodenotice.Notice{
			Node: name, Source: nodenotice.MetadataServer, Time: builders.Noon, Deadline: builders.Noon.Add(nodenotice.Grace),
		}
	}
	return o
}

// answered has the agent report the outcome of a request.
func answered(o observed, id string, state report.RequestState, path, message string) observed {
	return serving(o, report.Report{Phase: report.PhaseSyncing, Request: &report.Request{ID: id, State: state, Path: path, Message: message}})
}

// spread are the pods of an attempt, each worker on the node of its number, worker 0 with its agent.
func spread(job *mlv1.TrainingJob, attempt int) []*corev1.Pod {
	workers := builders.Workers(job).Attempt(attempt).Obj()
	var pods []*corev1.Pod
	for replica := range int(job.Spec.NumWorkers) {
		b := builders.Pod(workers, replica).Running().On("n" + string(rune('0'+replica)))
		if replica == 0 {
			b = b.InitRunning(report.AgentContainer)
		}
		pods = append(pods, b.Obj())
	}
	return pods
}

// training is a job of three workers on three nodes that trains, with its Job and its pods.
func training(t *testing.T, b *builders.TrainingJobBuilder) observed {
	t.Helper()
	job := runningJob(t, b.Workers(3))
	return see(job, builders.Workers(job).Obj(), spread(job, 0)...)
}

// next is what is observed after the status was written.
func (o observed) next(d desired) observed {
	job := o.job.DeepCopy()
	job.Status = *d.status.DeepCopy()
	o.job = job
	return o
}

const savedAt = "/checkpoints/bert/uid-of-bert/checkpoint-step-55"

func TestANoticeHasACheckpointTakenAndTheJobStartedAgainElsewhere(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints().BackoffLimit(0)).told("n1")

	asks := plan(o)
	assert.Equal(t, "preemption-1", asks.urgent, "at once")
	assert.Equal(t, mlv1.StateRunning, asks.status.State, "the training goes on meanwhile")
	assert.Equal(t, 20*time.Second, asks.again, "the margin is kept")
	want := &mlv1.PreemptionStatus{
		State: mlv1.PreemptionCheckpointing, Count: 1, RequestID: "preemption-1", Message: "a checkpoint is taken before a worker leaves its node",
		Nodes: []mlv1.NoticedNode{{
			Name: "n1", Source: "MetadataServer", Time: ptr.To(metav1.NewMicroTime(builders.Noon)),
			Deadline: ptr.To(metav1.NewMicroTime(builders.Noon.Add(30 * time.Second))),
		}},
	}
	assert.Equal(t, want, asks.status.Preemption)

	o = o.next(asks)
	waits := plan(answered(o, "preemption-1", report.RequestPending, "", "").after(time.Second))
	assert.Equal(t, "preemption-1", waits.urgent, "it is asked for until there is an answer")
	assert.Equal(t, o.job.Status.Preemption, waits.status.Preemption, "and nothing is written meanwhile")

	leaves := plan(answered(o, "preemption-1", report.RequestDone, savedAt, "").after(2 * time.Second))
	assert.Empty(t, leaves.urgent)
	assert.Equal(t, mlv1.StateRestarting, leaves.status.State)
	assert.Equal(t, reasons.NodePreempted, leaves.status.Reason)
	assert.Equal(t, []int32{1, 1}, []int32{leaves.status.RestartCount, leaves.status.DisruptionCount}, "it does not count against the backoff limit")
	assert.Equal(t, "/bert/uid-of-bert/checkpoint-step-55", leaves.status.Preemption.CheckpointPath)
	assert.Equal(t, "worker 1 (pod bert-training-1-a0 on node n1) was stopped because the provider takes its node back: "+
		"MetadataServer at 2030-01-02T12:00:00Z; goes on from the checkpoint /bert/uid-of-bert/checkpoint-step-55, which was taken for it, "+
		"or a newer one that the workers save when they stop", leaves.status.FailureReason)
	assert.Equal(t, &mlv1.FailureStatus{
		Attempt: 1, Reason: reasons.NodePreempted, Worker: ptr.To[int32](1), PodName: "bert-training-1-a0", NodeName: "n1",
		Time: ptr.To(metav1.NewTime(builders.Noon.Add(2 * time.Second))),
	}, leaves.status.LastFailure)
	assert.Empty(t, leaves.expelled, "the decision is written down first")

	stops := plan(o.next(leaves).after(2 * time.Second))
	assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(stops).Delete)
	require.Len(t, stops.expelled, 1, "only the pod on the node is hurried")
	assert.Equal(t, int64(26), stops.expelled[o.pods[1]])
	assert.Equal(t, int32(1), stops.status.RestartCount)

	starts := plan(see(o.next(stops).job, nil).told("n1").after(5 * time.Second))
	assert.Contains(t, outlineOf(starts).Apply, "Job bert-training, attempt 1", "without a pause")

	job := o.next(stops).job
	again := plan(see(job, builders.Workers(job).Attempt(1).Obj(), spread(job, 1)...).told("n1").after(time.Minute))
	assert.Equal(t, mlv1.StateRunning, again.status.State, "a worker that came onto the node again stays: each notice is acted upon once")
	assert.Empty(t, again.urgent)
}

func TestTheEndOfTheWaitForACheckpoint(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(observed) observed
		leaves  bool
		message string
	}{
		"there is time":         {func(o observed) observed { return o.after(19 * time.Second) }, false, "a checkpoint is taken"},
		"there is no more time": {func(o observed) observed { return o.after(20 * time.Second) }, true, "there is no more time to wait for it; goes on from what the workers save when they stop"},
		"it failed": {
			func(o observed) observed {
				return answered(o, "preemption-1", report.RequestFailed, "", "no space left")
			}, true,
			"no checkpoint could be taken: no space left; goes on from what the workers save when they stop, or else from the beginning",
		},
		"another request ended": {func(o observed) observed { return answered(o, "before-lunch", report.RequestDone, savedAt, "") }, false, "a checkpoint is taken"},
		"the agent went": {func(o observed) observed {
			pods := slices.Clone(o.pods)
			pods[0] = builders.Pod(o.workers, 0).Running().On("n0").Obj()
			o.pods = pods
			return o
		}, true, "the checkpoint agent of worker 0 does not run"},
	} {
		t.Run(name, func(t *testing.T) {
			o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
			o = o.next(plan(o))

			d := plan(test.change(o))

			assert.Equal(t, test.leaves, d.status.RestartCount == 1)
			assert.Contains(t, d.status.Preemption.Message, test.message)
		})
	}
}

func TestSeveralNoticesAreOneRestart(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	first := plan(o)
	o = o.next(first).told("n1", "n2")
	second := plan(o.after(time.Second))
	assert.Equal(t, "preemption-1", second.urgent, "the checkpoint is the same")
	assert.Len(t, second.status.Preemption.Nodes, 2)

	o = answered(o.next(second), "preemption-1", report.RequestDone, savedAt, "").told("n0", "n1", "n2") // a third just now
	leaves := plan(o.after(2 * time.Second))
	assert.Equal(t, int32(1), leaves.status.RestartCount)
	assert.Equal(t, int32(1), leaves.status.Preemption.Count)
	for _, node := range leaves.status.Preemption.Nodes {
		assert.True(t, node.Left, node.Name)
	}
	assert.Contains(t, leaves.status.FailureReason, "worker 0 (pod bert-training-0-a0 on node n0) was stopped because the provider takes its node back")
	assert.Contains(t, leaves.status.FailureReason, "so have workers 1, 2")

	stops := plan(o.next(leaves).after(3 * time.Second))
	assert.Equal(t, int32(1), stops.status.RestartCount)
	assert.Len(t, stops.expelled, 3)
}

func TestALaterNoticeOfAnotherNodeIsAnotherRestart(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	o = answered(o.next(plan(o)), "preemption-1", report.RequestDone, savedAt, "")
	job := o.next(plan(o)).job
	job.Status.State = mlv1.StateRunning // the second attempt trains
	o = see(job, builders.Workers(job).Attempt(1).Obj(), spread(job, 1)...).told("n1", "n2").after(20 * time.Second)

	d := plan(serving(o, report.Report{Phase: report.PhaseSyncing, Request: &report.Request{ID: "preemption-1", State: report.RequestDone, Path: savedAt}}))

	assert.Equal(t, "preemption-2", d.urgent, "the checkpoint of the first is none for the second")
	assert.Equal(t, int32(2), d.status.Preemption.Count)
}

func TestANoticeThatIsWithdrawn(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	o = o.next(plan(o)).told()
	o.unnoticed = map[string]bool{"n1": true}

	d := plan(o)

	assert.Zero(t, d.status.RestartCount)
	assert.Equal(t, &mlv1.PreemptionStatus{State: mlv1.PreemptionWithdrawn, Count: 1, RequestID: "preemption-1",
		Message: "the notice was taken back, and the workers stay", Nodes: []mlv1.NoticedNode{}}, d.status.Preemption)
	assert.Empty(t, d.urgent)

	o = o.next(d).told("n1")
	o.unnoticed = nil
	assert.Equal(t, "preemption-2", plan(o).urgent, "a later notice on the same node is a new one")
}

func TestANodeThatGoesWithItsWorkersBeforeTheCheckpoint(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints().BackoffLimit(0)).told("n1")
	o = o.next(plan(o))
	o.pods = slices.Clone(o.pods)
	o.pods[1] = builders.Pod(o.workers, 1).On("n1").Failed(137).Obj()

	d := plan(o.after(5 * time.Second))
	assert.Equal(t, reasons.NodePreempted, d.status.Reason, "it is not the training's doing")
	assert.Equal(t, int32(1), d.status.DisruptionCount)

	job := o.next(d).job
	job.Status.State = mlv1.StateInitializing
	later := plan(see(job, builders.Workers(job).Attempt(1).Obj(), spread(job, 1)[:1]...)) // the node is gone
	assert.Equal(t, mlv1.PreemptionLeft, later.status.Preemption.State)
	assert.Equal(t, "the workers were gone before a checkpoint was taken", later.status.Preemption.Message)
}

func TestWhoMindsANotice(t *testing.T) {
	for name, test := range map[string]struct {
		job            *builders.TrainingJobBuilder
		asks, restarts bool
	}{
		"checkpoints":              {builders.TrainingJob("bert").Checkpoints(), true, false},
		"spot with checkpoints":    {onSpot(builders.TrainingJob("bert").Checkpoints()), true, false},
		"spot alone":               {onSpot(builders.TrainingJob("bert")), false, true},
		"neither":                  {builders.TrainingJob("bert"), false, false},
		"checkpoints switched off": {builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Enabled = ptr.To(false) }), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(training(t, test.job).told("n1"))
			assert.Equal(t, test.asks, d.urgent != "")
			assert.Equal(t, test.restarts, d.status.RestartCount == 1)
		})
	}
}

func TestNoticesOfOtherNodesAndOfEndedWorkersDoNotMatter(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints())
	assert.Nil(t, plan(o.told("elsewhere")).status.Preemption)
	o.pods = slices.Clone(o.pods)
	o.pods[1] = builders.Pod(o.workers, 1).On("n1").Succeeded("").Obj()
	assert.Nil(t, plan(o.told("n1")).status.Preemption)
}

func TestAJobThatDoesNotTrainYetLeavesAtOnce(t *testing.T) {
	job := builders.TrainingJob("bert").Checkpoints().Workers(2).Obj()
	workers := builders.Workers(job).Obj()
	starting := builders.Pod(workers, 1).On("n1").Obj()
	d := plan(see(job, workers, builders.Pod(workers, 0).Running().On("n0").Obj(), starting).told("n1"))
	assert.Equal(t, int32(1), d.status.RestartCount)
	assert.Contains(t, d.status.FailureReason, "the training did not run yet")
}

func TestAWorkerThatSaysThatItCannotGoOnIsNotExcusedByANotice(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	o.pods = slices.Clone(o.pods)
	o.pods[0] = builders.Pod(o.workers, 0).On("n0").Failed(64).Obj()
	assert.Equal(t, mlv1.StateFailed, plan(o).status.State)
}

func TestAnElasticJobGoesOnWithoutTheWorkerWhoseNodeGoes(t *testing.T) {
	o := training(t, elastic().Checkpoints()).told("n2")
	asks := plan(o)
	require.Equal(t, "preemption-1", asks.urgent)
	o = answered(o.next(asks), "preemption-1", report.RequestDone, savedAt, "")

	leaves := plan(o.after(3 * time.Second))
	assert.Zero(t, leaves.status.RestartCount)
	assert.Equal(t, mlv1.StateRunning, leaves.status.State)
	assert.Equal(t, map[*corev1.Pod]int64{o.pods[2]: 25}, leaves.expelled)
	assert.Equal(t, mlv1.PreemptionLeft, leaves.status.Preemption.State)

	o = o.next(leaves)
	o.pods = slices.Clone(o.pods)
	o.pods[2] = builders.Pod(o.workers, 2).On("n2").Running().Deleting(28 * time.Second).Obj()
	goesOn := plan(o.after(4 * time.Second))
	assert.Equal(t, reasons.WorkerLost, goesOn.status.Reason)
	assert.Equal(t, reasons.NodePreempted, goesOn.status.LastFailure.Reason)
	assert.Contains(t, message(goesOn), "goes on with 2 of 3 workers: worker 2 (pod bert-training-2-a0 on node n2) was stopped because the provider takes its node back")
	assert.Zero(t, goesOn.status.WorkerFailures)
	assert.Empty(t, goesOn.expelled, "it is told once")

	o = o.next(goesOn)
	o.pods[2] = builders.Pod(o.workers, 2).Again(time.Minute).On("n9").Running().Obj()
	back := plan(o.after(2 * time.Minute))
	assert.Equal(t, reasons.WorkersRunning, back.status.Reason)
	assert.Equal(t, int32(3), back.status.Workers.Active)
}

func TestAnElasticJobStartsAgainWhenWorkerZeroHasToLeave(t *testing.T) {
	o := training(t, elastic().Checkpoints()).told("n0", "n2")
	o = answered(o.next(plan(o)), "preemption-1", report.RequestDone, savedAt, "")
	d := plan(o)
	assert.Equal(t, int32(1), d.status.RestartCount)
	assert.Equal(t, int32(1), d.status.DisruptionCount)
	assert.Empty(t, d.expelled)
}

func TestTheTimeThatANoticeLeaves(t *testing.T) {
	notice := func(since, until time.Duration) nodenotice.Notice {
		return nodenotice.Notice{Node: "n1", Time: builders.Noon.Add(since), Deadline: builders.Noon.Add(until)}
	}
	for name, test := range map[string]struct {
		notice nodenotice.Notice
		left   time.Duration
	}{
		"Compute Engine":       {notice(0, 30*time.Second), 20 * time.Second},
		"two minutes":          {notice(0, 2*time.Minute), 110 * time.Second},
		"a short one":          {notice(0, 18*time.Second), 12 * time.Second},
		"no deadline":          {nodenotice.Notice{Node: "n1", Time: builders.Noon}, 20 * time.Second},
		"it should be gone":    {notice(-time.Hour, -time.Hour), 5 * time.Second},
		"the manager was away": {notice(-25*time.Second, 5*time.Second), 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := training(t, builders.TrainingJob("bert").Checkpoints())
			o.notices = map[string]nodenotice.Notice{"n1": test.notice}
			assert.Equal(t, test.left, plan(o).again)
		})
	}
}

func TestADeadlineOfATaintWithoutATimeStaysThatOfTheFirstLook(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	first := plan(o)
	later := o.next(first).after(10 * time.Second)
	later.notices = map[string]nodenotice.Notice{"n1": {Node: "n1", Source: nodenotice.MetadataServer, Time: later.now, Deadline: later.now.Add(nodenotice.Grace)}}
	second := plan(later)
	assert.Equal(t, first.status.Preemption, second.status.Preemption)
	assert.Equal(t, 10*time.Second, second.again)

	later.notices["n1"] = nodenotice.Notice{Node: "n1", Source: nodenotice.NodeShutdown, Time: later.now, Deadline: later.now.Add(15 * time.Second)}
	nearer := plan(later)
	assert.Equal(t, "NodeShutdown", nearer.status.Preemption.Nodes[0].Source, "another source has an earlier deadline")
}

func TestARequestOfAPersonWaitsForTheUrgentOne(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	asking(o.job, "before-lunch")
	d := plan(o)
	assert.Equal(t, "preemption-1", d.urgent)
	assert.Equal(t, "before-lunch", d.ask)
	assert.Equal(t, mlv1.CheckpointRequestPending, d.status.Checkpoint.Request.State)
}

func TestWhatIsToldOfANotice(t *testing.T) {
	o := training(t, builders.TrainingJob("bert").Checkpoints()).told("n1")
	asks := plan(o)
	seen := noticeEvents(&o.job.Status, &asks.status)
	require.Len(t, seen, 1)
	assert.Equal(t, reporting.Warning("PreemptionNotice", "Preempt", "taken back by the provider: node n1 at 12:00:30Z (MetadataServer); a checkpoint is asked for (preemption-1)"), seen[0])
	o = o.next(asks)
	assert.Empty(t, noticeEvents(&o.job.Status, &asks.status))

	done := plan(answered(o, "preemption-1", report.RequestDone, savedAt, ""))
	assert.Equal(t, "PreemptionCheckpoint", noticeEvents(&o.job.Status, &done.status)[0].Reason)
	late := plan(o.after(time.Minute))
	assert.Equal(t, "PreemptionWithoutCheckpoint", noticeEvents(&o.job.Status, &late.status)[0].Reason)
	back := o.told()
	back.unnoticed = map[string]bool{"n1": true}
	withdrawn := plan(back)
	assert.Equal(t, "PreemptionNoticeWithdrawn", noticeEvents(&o.job.Status, &withdrawn.status)[0].Reason)
}

func noticeEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	var t teller
	t.notices(before, after)
	return t
}
