package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// inQueue is a job of two workers in the queue research.
func inQueue(name string) *builders.TrainingJobBuilder {
	return builders.TrainingJob(name).Workers(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{QueueName: "research"}
	})
}

// decided is what is observed after a cycle.
func (o observed) decided(d queueing.Decision) observed {
	o.decision = d
	return o
}

func admittedTo(nodes ...string) queueing.Decision {
	return queueing.Decision{Admitted: &scheduler.Admission{Nodes: nodes}}
}

func preemptedBy(name string) queueing.Decision {
	return queueing.Decision{Preempted: &queueing.PreemptedBy{Kind: "AIJob", Namespace: "team", Name: name, Priority: 90}}
}

// waitingJob has told that it waits.
func waitingJob(b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	job := b.Obj()
	job.Status = plan(see(job, nil)).status
	return job
}

// admittedJob has its place, and no workers yet.
func admittedJob(b *builders.TrainingJobBuilder, nodes ...string) *mlv1.TrainingJob {
	job := waitingJob(b)
	job.Status = plan(see(job, nil).decided(admittedTo(nodes...))).status
	return job
}

// trainingJob has its place, and all its workers run there.
func trainingInQueue(t *testing.T, b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	t.Helper()
	job := admittedJob(b, "a", "b")
	job.Status = plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...)).status
	require.Equal(t, mlv1.StateRunning, job.Status.State)
	return job
}

func messageOf(d desired, kind string) string {
	for _, condition := range d.status.Conditions {
		if condition.Type == kind {
			return condition.Message
		}
	}
	return ""
}

func TestAQueuedJobHasNoWorkersBeforeItIsAdmitted(t *testing.T) {
	job := inQueue("bert").Obj()
	waiting := outline{
		State: mlv1.StatePending, Reason: reasons.Queued, Workers: mlv1.WorkersStatus{Total: 2},
		Conditions: conditions{"Admitted": "False Queued", "Initialized": "False Queued"},
	}

	first := plan(see(job, nil))

	lookingLike(t, waiting, first)
	assert.Equal(t, &mlv1.AdmissionStatus{QueuedTime: ptr.To(metav1.NewTime(builders.Noon))}, first.status.Admission)

	job.Status = first.status
	told := plan(see(job, nil).after(time.Minute).decided(queueing.Decision{Wait: &scheduler.Wait{
		Position: 3, Reason: reasons.QuotaReached, Message: "2 of 2 GPUs are in use",
	}}))

	waiting.Reason = reasons.QuotaReached
	waiting.Conditions = conditions{"Admitted": "False QuotaReached", "Initialized": "False QuotaReached"}
	lookingLike(t, waiting, told)
	assert.Equal(t, "position 3 in AIJobQueue research: 2 of 2 GPUs are in use", messageOf(told, "Admitted"))
	assert.Equal(t, builders.Noon, told.status.Admission.QueuedTime.Time, "it waits since then")

	job.Status = told.status
	lookingLike(t, waiting, plan(see(job, nil).after(2*time.Minute))) // after a start of the manager, before the first decision
}

func TestAnAdmittedJobFirstSaysWhereItsPlaceIs(t *testing.T) {
	job := waitingJob(inQueue("bert"))

	d := plan(see(job, nil).after(time.Minute).decided(admittedTo("b", "a")))

	lookingLike(t, outline{
		State: mlv1.StateInitializing, Reason: reasons.WorkersStarting, Workers: mlv1.WorkersStatus{Total: 2}, Again: time.Millisecond,
		Conditions: conditions{
			"Admitted": "True AdmittedByQueue", "Initialized": "False WorkersStarting", "Running": "False WorkersStarting",
		},
	}, d)
	assert.Equal(t, []mlv1.NodeAssignment{{NodeName: "a", Workers: 1}, {NodeName: "b", Workers: 1}}, d.status.Admission.Assignments)
	assert.Equal(t, "admitted by AIJobQueue research: 2 workers on a, b", messageOf(d, "Admitted"))

	job.Status = d.status
	start := plan(see(job, nil).after(time.Minute))

	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"}, outlineOf(start).Apply)
	term := func(node string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}
	}
	workers := start.apply[1].(*batchv1.Job)
	assert.Equal(t, []corev1.NodeSelectorTerm{term("a"), term("b")},
		workers.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
}

func TestThePlaceHoldsBesideWhatTheSpecRequires(t *testing.T) {
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"z"}}
	b := inQueue("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}, {},
			}},
		}}
	})
	job := admittedJob(b, "a", "a")

	pod := build.PodSpec(job, build.Settings{})

	on := []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{zone}, MatchFields: on}, {MatchFields: on}},
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	assert.Nil(t, job.Spec.Scheduling.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields,
		"the spec is not changed")
}

func TestAPreemptedJobStopsAsASuspendedOneAndWaitsAgain(t *testing.T) {
	job := trainingInQueue(t, inQueue("bert"))
	why := "preempted by AIJob team/urgent (priority 90)"

	// First it stands in the status: a manager that ends now must not take the end of the workers for a failure.
	marked := plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...).decided(preemptedBy("urgent")))
	assert.Empty(t, outlineOf(marked).Delete)
	assert.Equal(t, why, marked.status.Admission.Releasing)
	assert.EqualValues(t, 1, marked.status.Admission.PreemptionCount)

	job.Status = marked.status
	stopping := plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...))
	assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(stopping).Delete)
	assert.Equal(t, "False Preempted", outlineOf(stopping).Conditions["Admitted"])

	job.Status = stopping.status
	ending := plan(see(job, nil, builders.Pod(builders.Workers(job).Obj(), 0).Running().Deleting(time.Minute).Obj()))
	assert.NotNil(t, ending.status.Admission.AdmittedTime, "its workers still save a checkpoint in its place")

	job.Status = ending.status
	waits := plan(see(job, nil).after(time.Minute))
	lookingLike(t, outline{
		State: mlv1.StateSuspended, Reason: reasons.Preempted, Workers: mlv1.WorkersStatus{Total: 2},
		Conditions: conditions{
			"Admitted": "False Queued", "Initialized": "False Preempted", "Running": "False Preempted", "Suspended": "True Preempted",
		},
	}, waits)
	assert.Equal(t, &mlv1.AdmissionStatus{QueuedTime: ptr.To(metav1.NewTime(builders.Noon.Add(time.Minute))), PreemptionCount: 1}, waits.status.Admission)

	job.Status = waits.status
	still := plan(see(job, nil).after(time.Hour).decided(queueing.Decision{Wait: &scheduler.Wait{Position: 1, Reason: "InsufficientCapacity", Message: "needs 2"}}))
	assert.Equal(t, mlv1.StateSuspended, still.status.State)
	assert.Equal(t, "evicted from the queue; waiting for readmission: position 1 in AIJobQueue research: needs 2", messageOf(still, "Suspended"))

	again := plan(see(job, nil).after(time.Hour).decided(admittedTo("c", "c")))
	assert.Equal(t, mlv1.StateInitializing, again.status.State)
	assert.Zero(t, again.status.RestartCount, "a preemption is no restart")
	assert.EqualValues(t, 1, again.status.Admission.PreemptionCount)
	job.Status = again.status
	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"}, outlineOf(plan(see(job, nil).after(time.Hour))).Apply)
}

func TestAJobThatEndsBeforeItCouldBeStoppedIsComplete(t *testing.T) {
	job := trainingInQueue(t, inQueue("bert"))
	job.Status.Admission.Releasing = "for another"
	workers := builders.Workers(job).Obj()
	d := plan(see(job, workers, builders.Pod(workers, 0).Succeeded("").Obj(), builders.Pod(workers, 1).Succeeded("").Obj()))
	assert.Equal(t, mlv1.StateCompleted, d.status.State)
}

func TestAPlaceIsGivenBack(t *testing.T) {
	lost := func(t *testing.T) observed {
		job := trainingInQueue(t, inQueue("bert"))
		job.Status.State, job.Status.Reason, job.Status.FailureReason = mlv1.StateRestarting, reasons.NodeLost, "worker 0 was lost with its node"
		return see(job, nil)
	}
	failed := func(t *testing.T) observed {
		o := lost(t)
		o.job.Status.Reason = reasons.ProgramFailed
		return o
	}
	rescaled := func(t *testing.T) observed {
		job := trainingInQueue(t, inQueue("bert"))
		job.Spec.NumWorkers = 3
		return see(job, nil)
	}
	refused := func(since time.Duration) observed {
		job := admittedJob(inQueue("bert"), "a", "b")
		workers := builders.Workers(job).Obj()
		pod := builders.Pod(workers, 0).Unschedulable("0/3 nodes are available").Obj()
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(builders.Noon)
		return see(job, workers, pod, builders.Pod(workers, 1).Obj()).after(since)
	}
	tests := map[string]struct {
		o     observed
		why   string
		again time.Duration
	}{
		"when a node was lost":                  {o: lost(t), why: "the node of a lost worker may be gone: worker 0 was lost with its node"},
		"not when a worker failed":              {o: failed(t)},
		"when the number of workers is another": {o: rescaled(t), why: "spec.numWorkers is 3, but the queue admitted 2 workers"},
		"when its workers found no room":        {o: refused(time.Minute), why: "was not bound to the nodes that the queue assigned within 1m0s: "},
		"not before they tried for a while":     {o: refused(10 * time.Second), again: 50 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := plan(test.o)
			if test.why == "" {
				assert.Empty(t, d.status.Admission.Releasing)
			}
			assert.Contains(t, d.status.Admission.Releasing, test.why)
			if test.again > 0 {
				assert.Equal(t, test.again, d.again)
			}
		})
	}
}

func TestASuspendedJobHoldsNoPlace(t *testing.T) {
	job := trainingInQueue(t, inQueue("bert"))
	job.Spec.Suspend = ptr.To(true)

	stopping := plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...))
	assert.NotNil(t, stopping.status.Admission, "its workers are still there")
	job.Status = stopping.status
	suspended := plan(see(job, nil))
	assert.Nil(t, suspended.status.Admission)
	assert.Equal(t, mlv1.StateSuspended, suspended.status.State)

	job.Status, job.Spec.Suspend = suspended.status, ptr.To(false)
	resumed := plan(see(job, nil).after(time.Hour))
	assert.Empty(t, outlineOf(resumed).Apply)
	assert.Equal(t, builders.Noon.Add(time.Hour), resumed.status.Admission.QueuedTime.Time, "it waits from the start")
	assert.Equal(t, "False Queued", outlineOf(resumed).Conditions["Admitted"])
}

func TestAJobThatCannotBeStartedDoesNotWait(t *testing.T) {
	o := see(inQueue("bert").Claim("shared").Obj(), nil)
	o.missingClaim = "shared"
	assert.Nil(t, plan(o).status.Admission, "a job that can start goes first")

	both := plan(see(inQueue("bert").Labels(map[string]string{build.KueueQueueLabel: "q"}).Obj(), nil))
	assert.Nil(t, both.status.Admission)
	assert.Equal(t, reasons.InvalidSpec, both.status.Reason)
	assert.Contains(t, messageOf(both, "Initialized"), "spec.scheduling.queueName: names AIJobQueue research, but the label kueue.x-k8s.io/queue-name")
}

func TestAJobThatRunsSinceBeforeItsQueueWasServedGoesOn(t *testing.T) {
	job := inQueue("bert").Obj()
	d := plan(see(job, builders.Workers(job).Obj(), runningPods(job, 0)...))
	assert.Equal(t, mlv1.StateRunning, d.status.State)
	assert.Nil(t, d.status.Admission)
	assert.Equal(t, "True AdmittedUnqueued", outlineOf(d).Conditions["Admitted"])
}

func TestADeadlineDoesNotRunWhileAJobWaitsAgain(t *testing.T) {
	job := trainingInQueue(t, inQueue("bert").Deadline(60))
	job.Status.Admission.Releasing = "for another"
	job.Status = plan(see(job, nil)).status
	d := plan(see(job, nil).after(time.Hour))
	assert.Equal(t, mlv1.StateSuspended, d.status.State)
}

// ofUser is the annotation that the webhook writes.
func ofUser(name string) map[string]string {
	return map[string]string{aiplatformv1alpha1.AnnotationUser: name}
}

// An operator that begins to note users must not make other pods of the jobs that run.
func TestWhoseAJobIsChangesNoPod(t *testing.T) {
	assert.Equal(t, build.Workers(inQueue("bert").Obj(), build.Settings{}, 0), build.Workers(inQueue("bert").Annotations(ofUser("alice")).Obj(), build.Settings{}, 0))
}

func TestWhatTheSchedulerKnowsOfATrainingJob(t *testing.T) {
	classes := func(name string) (int32, bool) {
		value, ok := map[string]int32{"high": 80, "system": 2000000000, "negative": -5}[name]
		return value, ok
	}
	source := Source(build.Settings{}, classes, nil)
	with := func(class string) *builders.TrainingJobBuilder {
		return inQueue("bert").GPUs(2).Spec(func(s *mlv1.TrainingJobSpec) { s.Scheduling.Priority = class })
	}
	tests := map[string]struct {
		job   *mlv1.TrainingJob
		state queueing.State
		check func(t *testing.T, is scheduler.Job)
	}{
		"a job without a queue":             {job: builders.TrainingJob("bert").Obj(), state: queueing.Uninvolved},
		"a job that was not looked at yet":  {job: inQueue("bert").Obj(), state: queueing.Uninvolved},
		"a job that is suspended and waits": {job: waitingJob(inQueue("bert").Suspended()), state: queueing.Uninvolved},
		"a job of another priority": {job: waitingJob(with("high")), state: queueing.Waiting, check: func(t *testing.T, is scheduler.Job) {
			assert.EqualValues(t, 80, is.Priority)
			assert.Equal(t, "research", is.Queue)
			assert.False(t, is.Preemptible, "without checkpoints all would be lost")
			require.Len(t, is.Groups, 1)
			assert.Equal(t, 2, is.Groups[0].Count)
			assert.EqualValues(t, 2, is.Groups[0].Requests.GPUs)
			assert.EqualValues(t, 1, is.Groups[0].Requests.Pods)
			assert.Empty(t, is.User, "its user was not noted")
		}},
		"a job of a user": {
			job: waitingJob(inQueue("bert").Annotations(ofUser("alice"))), state: queueing.Waiting, check: func(t *testing.T, is scheduler.Job) {
				assert.Equal(t, "alice", is.User)
			},
		},
		"a priority above all of the queue": {job: waitingJob(with("system")), state: queueing.Waiting, check: func(t *testing.T, is scheduler.Job) {
			assert.EqualValues(t, 100, is.Priority)
		}},
		"one below": {job: waitingJob(with("negative")), state: queueing.Waiting, check: func(t *testing.T, is scheduler.Job) {
			assert.EqualValues(t, 0, is.Priority)
		}},
		"a class that does not exist": {job: waitingJob(with("missing")), state: queueing.Waiting, check: func(t *testing.T, is scheduler.Job) {
			assert.EqualValues(t, 50, is.Priority)
		}},
		"a job that keeps checkpoints": {
			job: admittedJob(inQueue("bert").Checkpoints(), "b", "a"), state: queueing.Holding, check: func(t *testing.T, is scheduler.Job) {
				assert.True(t, is.Preemptible)
				assert.False(t, is.Stopping)
				assert.Equal(t, []string{"a", "b"}, is.Placement)
			},
		},
		"a job that stops": {job: func() *mlv1.TrainingJob {
			job := admittedJob(inQueue("bert"), "a", "b")
			job.Spec.Suspend, job.Spec.NumWorkers = ptr.To(true), 3
			return job
		}(), state: queueing.Holding, check: func(t *testing.T, is scheduler.Job) {
			assert.True(t, is.Stopping)
			assert.Equal(t, 2, is.Groups[0].Count, "it holds what it was given")
		}},
		"a job that has ended": {job: func() *mlv1.TrainingJob {
			job := admittedJob(inQueue("bert"), "a", "b")
			job.Status.State = mlv1.StateCompleted
			return job
		}(), state: queueing.Uninvolved},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			is, state := source.Job(test.job)
			assert.Equal(t, test.state, state)
			if test.check != nil {
				test.check(t, is)
			}
		})
	}
}
