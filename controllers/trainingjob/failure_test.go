package trainingjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestFindFailureNamesTheCause(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(3).Obj()
	workers := builders.Workers(job).Obj()
	pod := func(replica int) *builders.PodBuilder { return builders.Pod(workers, replica) }
	lost := func(reason, message string) *failure {
		return &failure{End: podend.End{Reason: reason, Lost: true, Message: message}}
	}
	because := func(reason string, code int32, message string) *failure {
		return &failure{End: podend.End{Reason: reason, ExitCode: code, Message: message}}
	}
	failed := func(code int32, message string) *failure { return because(reasons.ProgramFailed, code, message) }
	killed := func(code int32, message string) *failure { return because(reasons.ProgramKilled, code, message) }
	const (
		prio   = "; to prevent it, give the job a higher spec.scheduling.priority"
		peer   = " ended with exit code 75 after it lost contact to another pod of the job"
		budget = "; a PodDisruptionBudget that selects the job's pods prevents such evictions"
	)

	tests := map[string]struct {
		workers *batchv1.Job
		pods    []*corev1.Pod
		want    *failure
	}{
		"nothing failed while all run": {
			pods: []*corev1.Pod{pod(0).Running().Obj(), pod(1).Running().Obj()},
		},
		"nothing failed when one has succeeded and is being deleted": {
			pods: []*corev1.Pod{pod(0).Succeeded("").Deleting(0).Obj()},
		},
		"an exit code": {
			pods: []*corev1.Pod{pod(0).Running().Obj(), pod(1).Failed(1).Obj()},
			want: failed(1, "worker 1 (pod bert-training-1-a0) ended with exit code 1"),
		},
		"an exit code with the worker's termination message": {
			pods: []*corev1.Pod{pod(1).Failed(2).Saying(" no such file: train.py\n").Obj()},
			want: failed(2, "worker 1 (pod bert-training-1-a0) ended with exit code 2: no such file: train.py"),
		},
		"an exit code with the message of the worker contract": {
			pods: []*corev1.Pod{pod(1).Failed(1).Saying(`{"training_epoch": 3, "message": "loss is NaN"}`).Obj()},
			want: failed(1, "worker 1 (pod bert-training-1-a0) ended with exit code 1: loss is NaN"),
		},
		"an exit code with a contract message that says nothing": {
			pods: []*corev1.Pod{pod(1).Failed(1).Saying(`{"training_epoch": 3}`).Obj()},
			want: failed(1, "worker 1 (pod bert-training-1-a0) ended with exit code 1"),
		},
		"exit code 128, which stands for no signal": {
			pods: []*corev1.Pod{pod(0).Failed(128).Obj()},
			want: failed(128, "worker 0 (pod bert-training-0-a0) ended with exit code 128"),
		},
		"a signal": {
			pods: []*corev1.Pod{pod(0).Failed(139).Obj()},
			want: killed(139, "worker 0 (pod bert-training-0-a0) was killed by signal 11 (exit code 139)"),
		},
		"exit code 137 without OOMKilled is signal 9": {
			pods: []*corev1.Pod{pod(0).Failed(137).Obj()},
			want: killed(137, "worker 0 (pod bert-training-0-a0) was killed by signal 9 (exit code 137)"),
		},
		"too much memory": {
			pods: []*corev1.Pod{pod(0).Failed(137).For("OOMKilled").Obj()},
			want: &failure{End: podend.End{
				Reason: reasons.OutOfMemory, ExitCode: 137,
				Message: "worker 0 (pod bert-training-0-a0) was killed for using more memory than its limit (exit code 137)" +
					"; raise spec.resources.limits.memory or lower spec.hyperparameters.batchSize",
			}},
		},
		"a pod that failed before any container ended": {
			pods: []*corev1.Pod{pod(0).FailedWithoutContainer("UnexpectedAdmissionError", "no GPU left").Obj()},
			want: lost(reasons.NodeRefused, "worker 0 (pod bert-training-0-a0) was refused by the kubelet of its node: UnexpectedAdmissionError: no GPU left"),
		},
		"a pod that failed and says nothing at all": {
			pods: []*corev1.Pod{pod(0).FailedWithoutContainer("", "").Obj()},
			want: failed(0, "worker 0 (pod bert-training-0-a0) failed: no container ended"),
		},
		"an eviction by the kubelet is a disruption": {
			pods: []*corev1.Pod{pod(0).FailedWithoutContainer("Evicted", "low on memory").Obj()},
			want: lost(reasons.NodePressure, "worker 0 (pod bert-training-0-a0) was evicted by the kubelet because its node was short of a resource: "+
				"Evicted: low on memory; set spec.resources.requests to what a worker really uses"),
		},
		"a shutdown of the node is a disruption": {
			pods: []*corev1.Pod{pod(0).FailedWithoutContainer("Terminated", "node shutdown").Obj()},
			want: lost(reasons.NodeShutdown, "worker 0 (pod bert-training-0-a0) was stopped because its node was shut down: Terminated: node shutdown"),
		},
		"preemption is a disruption, whatever the exit code": {
			pods: []*corev1.Pod{pod(2).Failed(137).Disrupted("PreemptionByScheduler", "for a more important pod").Obj()},
			want: lost(reasons.PodPreempted, "worker 2 (pod bert-training-2-a0) was preempted for a pod with a higher priority: "+
				"PreemptionByScheduler: for a more important pod"+prio),
		},
		"a disruption before its pod has ended": {
			pods: []*corev1.Pod{pod(2).Running().Disrupted("DeletionByTaintManager", "node gone").Deleting(time.Minute).Obj()},
			want: lost(reasons.NodeTainted, "worker 2 (pod bert-training-2-a0) was evicted because its node got a taint with the effect NoExecute: "+
				"DeletionByTaintManager: node gone; to stay on such nodes, add the taint to spec.scheduling.tolerations"),
		},
		"a disruption goes before a failure of its own": {
			pods: []*corev1.Pod{
				pod(0).Failed(1).After(-time.Second).Obj(),
				pod(1).Failed(143).Disrupted("EvictionByEvictionAPI", "drained").Obj(),
			},
			want: lost(reasons.Evicted, "worker 1 (pod bert-training-1-a0) was evicted through the API, as kubectl drain does: "+
				"EvictionByEvictionAPI: drained"+budget),
		},
		"a deleted pod that still ends": {
			pods: []*corev1.Pod{pod(1).Running().Deleting(time.Minute).Obj()},
			want: lost(reasons.PodDeleted, "worker 1 (pod bert-training-1-a0) was deleted"),
		},
		"a deleted pod that ended on SIGTERM": {
			pods: []*corev1.Pod{pod(1).Failed(143).Deleting(time.Minute).Obj()},
			want: lost(reasons.PodDeleted, "worker 1 (pod bert-training-1-a0) was deleted"),
		},
		"SIGTERM without a deletion is a failure": {
			pods: []*corev1.Pod{pod(1).Failed(143).Obj()},
			want: killed(143, "worker 1 (pod bert-training-1-a0) was killed by signal 15 (exit code 143)"),
		},
		"the culprit, not those that lost their peer before it was seen to end": {
			pods: []*corev1.Pod{
				pod(0).Failed(75).After(-time.Second).Obj(),
				pod(1).Failed(75).Obj(),
				pod(2).Failed(1).After(time.Second).Obj(),
			},
			want: failed(1, "worker 2 (pod bert-training-2-a0) ended with exit code 1"),
		},
		"the culprit, not those that were stopped then": {
			pods: []*corev1.Pod{
				pod(0).Failed(143).After(-time.Second).Deleting(0).Obj(),
				pod(1).Failed(1).Obj(),
			},
			want: failed(1, "worker 1 (pod bert-training-1-a0) ended with exit code 1"),
		},
		"the deleted pod, not those that lost it as their peer": {
			pods: []*corev1.Pod{pod(0).Failed(75).After(time.Second).Obj(), pod(1).Running().Deleting(time.Minute).Obj()},
			want: lost(reasons.PodDeleted, "worker 1 (pod bert-training-1-a0) was deleted"),
		},
		"the lost peer, not those that the Job controller deleted then": {
			pods: []*corev1.Pod{pod(0).Running().Deleting(61 * time.Second).Obj(), pod(1).Failed(75).Obj()},
			want: because(reasons.PeerLost, 75, "worker 1 (pod bert-training-1-a0)"+peer),
		},
		"the lost peer, not those that the Job controller deleted then and that ended on SIGTERM": {
			pods: []*corev1.Pod{pod(0).Failed(143).After(2 * time.Second).Deleting(61 * time.Second).Obj(), pod(1).Failed(75).Obj()},
			want: because(reasons.PeerLost, 75, "worker 1 (pod bert-training-1-a0)"+peer),
		},
		"the culprit that had already ended when the Job controller deleted it": {
			pods: []*corev1.Pod{
				pod(0).Failed(137).After(time.Second).Deleting(62 * time.Second).Obj(),
				pod(1).Failed(75).Obj(),
			},
			want: killed(137, "worker 0 (pod bert-training-0-a0) was killed by signal 9 (exit code 137)"),
		},
		"the first of two that failed on their own": {
			pods: []*corev1.Pod{pod(0).Failed(1).After(time.Second).Obj(), pod(1).Failed(2).Obj()},
			want: failed(2, "worker 1 (pod bert-training-1-a0) ended with exit code 2"),
		},
		"the lower replica of two that failed in the same second": {
			pods: []*corev1.Pod{pod(1).Failed(1).Obj(), pod(0).Failed(1).Obj()},
			want: failed(1, "worker 0 (pod bert-training-0-a0) ended with exit code 1"),
		},
		"a pod that wrote more than its limit failed by its own doing, though the kubelet calls it evicted": {
			pods: []*corev1.Pod{pod(0).FailedWithoutContainer("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ").Obj()},
			want: because(reasons.StorageLimitExceeded, 0, "worker 0 (pod bert-training-0-a0) was evicted: ephemeral-storage limit exceeded: "+
				"Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.; raise spec.resources.limits.ephemeral-storage, "+
				"or write to the checkpoint storage"),
		},
		"a program that cannot be started": {
			pods: []*corev1.Pod{pod(0).Failed(128).For("StartError").Saying("exec: train: not found").Obj()},
			want: because(reasons.ContainerStartFailed, 128, "worker 0 (pod bert-training-0-a0) could not start its program (exit code 128): "+
				"exec: train: not found; correct spec.command, or spec.image"),
		},
		"the kubelet's eviction of a pod whose node is short of memory": {
			pods: []*corev1.Pod{pod(0).Failed(137).Stopped("Evicted", "The node was low on resource: memory.").Disrupted("TerminationByKubelet", "The node was low on resource: memory.").Obj()},
			want: lost(reasons.NodePressure, "worker 0 (pod bert-training-0-a0) was evicted by the kubelet because its node was short of a resource: "+
				"TerminationByKubelet: The node was low on resource: memory.; set spec.resources.requests to what a worker really uses"),
		},
		"the kubelet's preemption for a critical pod": {
			pods: []*corev1.Pod{pod(0).Failed(137).Stopped("Preempting", "").Disrupted("TerminationByKubelet", "for a critical pod").Obj()},
			want: lost(reasons.PodPreempted, "worker 0 (pod bert-training-0-a0) was preempted for a pod with a higher priority: TerminationByKubelet: for a critical pod"+prio),
		},
		"the shutdown of a node": {
			pods: []*corev1.Pod{pod(0).Failed(143).Stopped("Terminated", "").Disrupted("TerminationByKubelet", "node shutdown").Obj()},
			want: lost(reasons.NodeShutdown, "worker 0 (pod bert-training-0-a0) was stopped because its node was shut down: TerminationByKubelet: node shutdown"),
		},
		"a pod whose node no longer exists": {
			pods: []*corev1.Pod{pod(0).On("n1").Failed(0).Disrupted("DeletionByPodGC", "node is gone").Obj()},
			want: lost(reasons.NodeLost, "worker 0 (pod bert-training-0-a0 on node n1) was lost with its node: DeletionByPodGC: node is gone"),
		},
		"a node that has no room": {
			pods: []*corev1.Pod{pod(0).FailedWithoutContainer("OutOfcpu", "too little").Obj()},
			want: lost(reasons.NodeRefused, "worker 0 (pod bert-training-0-a0) was refused by the kubelet of its node: OutOfcpu: too little"),
		},
		"a disruption of a kind that this version does not know": {
			pods: []*corev1.Pod{pod(0).Failed(143).Disrupted("DeletionBySomething", "why not").Obj()},
			want: lost(reasons.Disrupted, "worker 0 (pod bert-training-0-a0) was lost: DeletionBySomething: why not"),
		},
		"a lost peer when nothing else is known": {
			pods: []*corev1.Pod{pod(0).Failed(75).Obj()},
			want: because(reasons.PeerLost, 75, "worker 0 (pod bert-training-0-a0)"+peer),
		},
		"the Job's word when its pods are gone": {
			workers: builders.Workers(job).Condition(batchv1.JobFailed, "PodFailurePolicy", "Container trainer exited with 1").Obj(),
			want:    failed(0, "PodFailurePolicy: Container trainer exited with 1"),
		},
		"the Job's word of a disruption": {
			workers: builders.Workers(job).
				Condition(batchv1.JobFailureTarget, "PodFailurePolicy", "Pod has condition DisruptionTarget matching").Obj(),
			want: lost(reasons.Disrupted, "PodFailurePolicy: Pod has condition DisruptionTarget matching"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.workers == nil {
				test.workers = workers
			}
			assert.Empty(t, cmp.Diff(test.want, findFailure(test.workers, test.pods), cmp.AllowUnexported(failure{}),
				cmpopts.IgnoreFields(failure{}, "worker", "replica", "pod", "node"), cmpopts.IgnoreFields(podend.End{}, "Output")))
		})
	}
}

// The Job may be heard of before the pod that made it fail: how the program ended decides whether it is started again.
func TestAFailedJobIsJudgedByItsPodsOnceTheyAreHeardOf(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(3).Spec(func(spec *mlv1.TrainingJobSpec) {
		spec.FailurePolicy.NonRetryableExitCodes = []int32{64}
	}))
	workers := builders.Workers(job).Condition(batchv1.JobFailureTarget, "PodFailurePolicy", "Container trainer failed with exit code 64").Obj()
	pod := func(index int) *builders.PodBuilder { return builders.Pod(workers, index).On("n1") }

	early := plan(see(job, workers, pod(0).Running().Obj(), pod(1).Running().Obj())).status
	assert.Equal(t, mlv1.StateRunning, early.State)
	assert.Zero(t, early.RestartCount)
	late := plan(see(job, workers, pod(0).Running().Obj(), pod(1).Failed(64).Obj())).status
	assert.Equal(t, mlv1.StateFailed, late.State)
	assert.Equal(t, reasons.NonRetryableExitCode, late.Reason)
}

// The Job controller leaves a pod that ended by itself: a pod that only the Job describes was deleted, before its end where a signal was that.
func TestAWorkerThatIsGoneWasDeletedIfASignalEndedIt(t *testing.T) {
	for code, want := range map[int32]struct {
		reason  string
		counted bool
	}{
		1: {reasons.ProgramFailed, true}, 64: {reasons.ProgramFailed, true}, 137: {reasons.PodDeleted, false}, 143: {reasons.PodDeleted, false},
	} {
		job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(3).Spec(func(spec *mlv1.TrainingJobSpec) {
			spec.FailurePolicy.NonRetryableExitCodes = []int32{64}
		}))
		message := fmt.Sprintf("Container trainer for pod default/bert-training-0-x7k2p failed with exit code %d matching FailJob rule at index 1", code)
		status := plan(see(job, builders.Workers(job).Condition(batchv1.JobFailed, "PodFailurePolicy", message).Obj())).status
		assert.Equal(t, want.reason, status.LastFailure.Reason, "exit code %d", code)
		assert.Equal(t, want.counted, status.LastFailure.Counted, "exit code %d", code)
		assert.Equal(t, code == 64, status.State == mlv1.StateFailed, "exit code %d", code)
	}
}

// The Job controller has a limit reached where the pod failure policy knew no exit code: no program failed.
func TestAWorkerThatIsGoneWithoutAnExitCodeDidNotFail(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	workers := builders.Workers(job).Condition(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit").Obj()
	status := plan(see(job, workers)).status
	assert.Equal(t, reasons.PodDeleted, status.LastFailure.Reason)
	assert.False(t, status.LastFailure.Counted)
}

// A status with a traceback in it has it once.
func TestATracebackStandsInTheStatusOnce(t *testing.T) {
	const traceback = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nRuntimeError: no GPU with key mysecretvalue"
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(1).Spec(func(spec *mlv1.TrainingJobSpec) {
		spec.Env = []corev1.EnvVar{{Name: "API_KEY", Value: "mysecretvalue"}}
	}))
	for attempt := range 2 {
		workers := builders.Workers(job).Attempt(attempt).Obj()
		job.Status = plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Saying(traceback).Obj())).status

		assert.Contains(t, job.Status.FailureReason, "RuntimeError: no GPU with key ***")
		assert.NotContains(t, job.Status.FailureReason, "\n")
		for _, condition := range job.Status.Conditions {
			assert.NotContains(t, condition.Message, "Traceback", condition.Type)
		}
		assert.Equal(t, strings.Replace(traceback, "mysecretvalue", "***", 1), job.Status.LastFailure.Output)
	}
	assert.Equal(t, mlv1.StateFailed, job.Status.State)
}

func TestTheWordsOfFailedAttemptsStay(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(1).BackoffLimit(9))
	for attempt := range 6 {
		workers := builders.Workers(job).Attempt(attempt).Obj()
		job.Status = plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Saying(fmt.Sprintf("KeyError: %d", attempt+1)).Obj())).status
		job.Status = plan(see(job, nil)).status // the pods are gone
	}
	said := func(of mlv1.FailureStatus) string { return fmt.Sprintf("attempt %d: %s", of.Attempt, of.Output) }
	assert.Equal(t, "attempt 6: KeyError: 6", said(*job.Status.LastFailure))
	var earlier []string
	for _, failure := range job.Status.EarlierFailures {
		earlier = append(earlier, said(failure))
	}
	assert.Equal(t, []string{"attempt 5: KeyError: 5", "attempt 4: KeyError: 4", "attempt 3: KeyError: 3"}, earlier)
}

func TestJudge(t *testing.T) {
	restarted := func(restarts, disruptions int32) mlv1.TrainingJobStatus {
		return mlv1.TrainingJobStatus{RestartCount: restarts, DisruptionCount: disruptions}
	}
	crash := failure{End: podend.End{ExitCode: 1, Message: "crash"}}
	tests := map[string]struct {
		job   *builders.TrainingJobBuilder
		found failure
		want  outcome
	}{
		"the first failure is forgiven": {
			job: builders.TrainingJob("a"), found: crash,
			want: outcome{restart: true},
		},
		"the last failure within backoffLimit is forgiven": {
			job: builders.TrainingJob("a").Status(restarted(2, 0)), found: crash,
			want: outcome{restart: true},
		},
		"one failure more than backoffLimit ends the job": {
			job: builders.TrainingJob("a").Status(restarted(3, 0)), found: crash,
			want: outcome{reason: reasons.BackoffLimitExceeded, message: "failed 4 times, backoffLimit is 3; last: crash"},
		},
		"backoffLimit 0 forgives nothing": {
			job: builders.TrainingJob("a").BackoffLimit(0), found: crash,
			want: outcome{reason: reasons.BackoffLimitExceeded, message: "failed 1 times, backoffLimit is 0; last: crash"},
		},
		"restarts after disruptions do not use up backoffLimit": {
			job: builders.TrainingJob("a").Status(restarted(12, 10)), found: crash,
			want: outcome{restart: true},
		},
		"a disruption is forgiven after backoffLimit is used up": {
			job: builders.TrainingJob("a").Status(restarted(3, 0)), found: failure{End: podend.End{Lost: true}},
			want: outcome{restart: true},
		},
		"a disruption is forgiven with restartPolicy Never": {
			job: builders.TrainingJob("a").RestartPolicy(mlv1.RestartNever), found: failure{End: podend.End{Lost: true}},
			want: outcome{restart: true},
		},
		"restartPolicy Never ends the job at the first failure": {
			job: builders.TrainingJob("a").RestartPolicy(mlv1.RestartNever), found: crash,
			want: outcome{reason: reasons.RestartPolicyNever, message: "restartPolicy is Never: crash"},
		},
		"a non-retryable exit code ends the job": {
			job: builders.TrainingJob("a"), found: failure{End: podend.End{ExitCode: 64, Message: "bad usage"}},
			want: outcome{reason: reasons.NonRetryableExitCode, message: "bad usage"},
		},
		"restartPolicy ExitCode ends the job after a code below 128": {
			job: builders.TrainingJob("a").RestartPolicy(mlv1.RestartExitCode), found: failure{End: podend.End{ExitCode: 127, Message: "no program"}},
			want: outcome{
				reason:  reasons.NonRetryableExitCode,
				message: "restartPolicy ExitCode only restarts after exit codes from 128: no program",
			},
		},
		"restartPolicy ExitCode restarts after a signal": {
			job: builders.TrainingJob("a").RestartPolicy(mlv1.RestartExitCode), found: failure{End: podend.End{ExitCode: 137}},
			want: outcome{restart: true},
		},
		"restartPolicy ExitCode restarts when no container ended": {
			job: builders.TrainingJob("a").RestartPolicy(mlv1.RestartExitCode), found: failure{},
			want: outcome{restart: true},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, judge(test.job.Obj(), test.found))
		})
	}
}

func TestBackoff(t *testing.T) {
	tests := map[string]struct {
		status mlv1.TrainingJobStatus
		least  time.Duration
	}{
		"none after the first failure": {
			status: mlv1.TrainingJobStatus{RestartCount: 1, Reason: reasons.ProgramFailed},
		},
		"10s after the second failure": {
			status: mlv1.TrainingJobStatus{RestartCount: 2, Reason: reasons.ProgramFailed}, least: 10 * time.Second,
		},
		"20s after the third failure": {
			status: mlv1.TrainingJobStatus{RestartCount: 3, Reason: reasons.ProgramFailed}, least: 20 * time.Second,
		},
		"5m at most": {
			status: mlv1.TrainingJobStatus{RestartCount: 900, Reason: reasons.ProgramFailed}, least: 5 * time.Minute,
		},
		"disruptions before do not count": {
			status: mlv1.TrainingJobStatus{RestartCount: 7, DisruptionCount: 5, Reason: reasons.OutOfMemory}, least: 10 * time.Second,
		},
		"none after a disruption": {
			status: mlv1.TrainingJobStatus{RestartCount: 4, DisruptionCount: 1, Reason: reasons.Disrupted},
		},
		"none after the loss of a node": {
			status: mlv1.TrainingJobStatus{RestartCount: 4, DisruptionCount: 4, Reason: reasons.NodeLost},
		},
		"none after the loss of an attempt that ran": {
			status: mlv1.TrainingJobStatus{
				RestartCount: 2, DisruptionCount: 2, Reason: reasons.PodPreempted, LastRestartTime: ptr.To(metav1.NewTime(builders.Noon)),
				Conditions: []metav1.Condition{{Type: reasons.ConditionRunning, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(builders.Noon)}},
			},
		},
		"10s after the loss of an attempt that never ran": {
			status: mlv1.TrainingJobStatus{
				RestartCount: 2, DisruptionCount: 2, Reason: reasons.PodPreempted, LastRestartTime: ptr.To(metav1.NewTime(builders.Noon.Add(time.Minute))),
				Conditions: []metav1.Condition{{Type: reasons.ConditionRunning, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(builders.Noon)}},
			},
			least: 10 * time.Second,
		},
		"none after a change of the number of workers": {
			status: mlv1.TrainingJobStatus{RestartCount: 4, DisruptionCount: 1, Reason: reasons.Rescaled},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := builders.TrainingJob("a").Status(test.status).Obj()

			pause := backoff(job)

			assert.GreaterOrEqual(t, pause, test.least)
			assert.LessOrEqual(t, pause, test.least+test.least/4, "jitter is a quarter at most")
			assert.Equal(t, pause, backoff(job), "the same attempt waits the same time, whenever it is asked")
		})
	}
}

func TestBackoffOfJobsThatFailedTogetherDiffers(t *testing.T) {
	status := mlv1.TrainingJobStatus{RestartCount: 2, Reason: reasons.ProgramFailed}
	pauses := map[time.Duration]bool{}
	for _, name := range []string{"a", "b", "c", "d"} {
		pauses[backoff(builders.TrainingJob(name).Status(status).Obj())] = true
	}
	assert.Len(t, pauses, 4)
}
