package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func job() *builders.AIJobBuilder  { return builders.AIJob("infer") }
func gang() *builders.AIJobBuilder { return builders.AIJob("train").Gang(2) }

func TestAJobWaitsForItsPlace(t *testing.T) {
	w := worldOf(job())
	d := plan(w.observed)
	assert.Empty(t, d.status.Phase, "nothing is written while the first decision is to be expected")
	assert.Equal(t, firstDecision, d.again)

	d = plan(w.at(firstDecision).observed)
	assert.Equal(t, "Queued Queued", short(d.status))
	assert.Equal(t, w.job.CreationTimestamp, *d.status.QueuedTime)

	d = plan(w.waits(3, "InsufficientCapacity", "needs 4 GPUs on nodes that fit, 2 are free").observed)
	assert.Equal(t, "Queued InsufficientCapacity", short(d.status))
	assert.Equal(t, "needs 4 GPUs on nodes that fit, 2 are free", d.status.Message)
	assert.Equal(t, int32(3), d.status.QueuePosition)
	assert.Equal(t, map[string]string{
		"Queued": "True InsufficientCapacity", "Scheduled": "False InsufficientCapacity", "Ready": "False InsufficientCapacity",
	}, conditions(d.status))

	for _, reason := range []string{"QueueNotFound", "ClusterNotFound", "QueueRequired", "NamespaceNotSelected", "PriorityTooHigh"} {
		d = plan(w.waits(1, reason, "AIJobQueue gpus does not exist: create it").observed)
		assert.Equal(t, "False "+reason, conditions(d.status)["Ready"])
		w.job.Status = d.status
	}
	d = plan(w.waits(1, "QuotaReached", "full").observed)
	assert.Equal(t, "False QuotaReached", conditions(d.status)["Ready"], "the queue has appeared")
}

func TestPlacesInTheQueueAreToldNowAndThen(t *testing.T) {
	w := worldOf(job()).waits(30, "InsufficientCapacity", "needs 4, 2 are free")
	w.job.Status = plan(w.observed).status
	w.written = w.now
	for name, test := range map[string]struct {
		position int
		after    time.Duration
		want     int32
		again    time.Duration
	}{
		"far away, too early":   {29, 30 * time.Second, 30, 30 * time.Second},
		"far away, in time":     {29, time.Minute, 29, 0},
		"near, too early":       {5, time.Second, 30, 4 * time.Second},
		"near, in time":         {5, 5 * time.Second, 5, 0},
		"nothing new to report": {30, 0, 30, 0},
	} {
		t.Run(name, func(t *testing.T) {
			next := &world{w.observed}
			d := plan(next.at(test.after).waits(test.position, "InsufficientCapacity", "needs 4, 2 are free").observed)
			assert.Equal(t, test.want, d.status.QueuePosition)
			assert.Equal(t, test.again, d.again)
		})
	}
}

func TestAPlaceIsWrittenDownBeforeAnyPodIsMade(t *testing.T) {
	w := worldOf(gang()).admitted("a", "b")
	w.missingServices = buildServices(w.job)

	d := plan(w.observed)
	assert.Empty(t, steps(d))
	assert.Equal(t, "Scheduled AdmittedByQueue", short(d.status))
	assert.Equal(t, []string{"a", "b"}, placementOf(&d.status))
	assert.Equal(t, map[string]string{"Queued": "False AdmittedByQueue", "Scheduled": "True AdmittedByQueue", "Ready": "False AdmittedByQueue"}, conditions(d.status))

	w.job.Status = d.status
	assert.Equal(t, "create Service train-members, create 0 on a, create 1 on b", steps(plan(w.observed)))

	w.missingServices = nil
	w.pod(1, "", corev1.PodPending)
	assert.Equal(t, "create 0 on a", steps(plan(w.observed)), "what a crash left out")
}

func TestAGangRunsWhenAllItsMembersDo(t *testing.T) {
	w := worldOf(gang()).scheduled("a", "b")
	w.pod(0, "a", corev1.PodRunning)
	last := w.pod(1, "b", corev1.PodPending)
	assert.Equal(t, "Scheduled AdmittedByQueue", short(plan(w.observed).status))

	last.Status.Phase = corev1.PodRunning
	d := plan(w.at(10 * time.Second).observed)
	assert.Equal(t, "Running Running", short(d.status))
	assert.Equal(t, aiplatformv1alpha1.MembersStatus{Total: 2, Active: 2}, *d.status.Members)
	assert.Equal(t, builders.Noon.Add(10*time.Second), d.status.StartTime.Time)
}

func TestAJobSucceedsWhenAllItsPodsHave(t *testing.T) {
	w := worldOf(gang()).running("a", "b")
	exit(w.pods[1], 0, `{"who": "member 1"}`, time.Minute)
	d := plan(w.observed)
	assert.Equal(t, "Running Running", short(d.status))

	exit(w.pods[0], 0, `{"accuracy": 0.93, "model": "s3://models/7", "tags": ["a", "b"]}`, time.Minute)
	d = plan(w.at(time.Minute).observed)
	assert.Equal(t, "Succeeded Completed", short(d.status))
	assert.Equal(t, map[string]string{"accuracy": "0.93", "model": "s3://models/7", "tags": `["a","b"]`}, d.status.Outputs, "member 0 wins")
	assert.Equal(t, int32(0), *d.status.ExitCode)
	assert.Empty(t, d.status.Assignments, "its place is free")
	assert.Equal(t, "True Completed", conditions(d.status)["Complete"])
	assert.Equal(t, builders.Noon.Add(time.Minute), d.status.CompletionTime.Time)
}

func TestAPodMayEndBeforeItWasSeenToRun(t *testing.T) {
	w := worldOf(job()).scheduled("a")
	exit(w.pod(0, "a", corev1.PodSucceeded), 0, "", time.Second)
	d := plan(w.at(time.Second).observed)
	assert.Equal(t, "Succeeded Completed", short(d.status))
	assert.Equal(t, builders.Noon, d.status.StartTime.Time)
}

func TestEndsOfATry(t *testing.T) {
	type want struct {
		status      string
		message     string
		retries     int32
		preemptions int32
		pause       bool
		exitCode    *int32
		place       bool // still held, while pods end
	}
	for name, test := range map[string]struct {
		job     *builders.AIJobBuilder
		end     func(*world)
		after   time.Duration
		phase   aiplatformv1alpha1.AIJobPhase // in which the try is, Running unless set
		pending bool                          // pods are made as Pending
		want    want
	}{
		"a program fails": {
			job: job(), end: func(w *world) { exit(w.pods[0], 3, "no such model", time.Second) },
			want: want{status: "Retrying ProgramFailed", message: "pod infer-0-0 on node a ended with exit code 3: no such model", retries: 1, pause: true, exitCode: ptr.To[int32](3)},
		},
		"a program says why it fails in JSON": {
			job: job(), end: func(w *world) { exit(w.pods[0], 3, `{"message": "no such model"}`, time.Second) },
			want: want{status: "Retrying ProgramFailed", message: "pod infer-0-0 on node a ended with exit code 3: no such model", retries: 1, pause: true, exitCode: ptr.To[int32](3)},
		},
		"a secret in the termination message": {
			job: job(), end: func(w *world) { exit(w.pods[0], 1, "login with password=hunter22 failed", time.Second) },
			want: want{status: "Retrying ProgramFailed", message: "pod infer-0-0 on node a ended with exit code 1: login with password=*** failed", retries: 1, pause: true, exitCode: ptr.To[int32](1)},
		},
		"out of memory": {
			job: job(), end: func(w *world) {
				exit(w.pods[0], 137, "", time.Second).Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
			},
			want: want{status: "Retrying OutOfMemory", message: "raise spec.resources.limits.memory", retries: 1, pause: true, exitCode: ptr.To[int32](137)},
		},
		"killed by a signal": {
			job: job(), end: func(w *world) { exit(w.pods[0], 139, "", time.Second) },
			want: want{status: "Retrying ProgramKilled", message: "signal 11", retries: 1, pause: true, exitCode: ptr.To[int32](139)},
		},
		"no retries": {
			job: job().Retries(0, time.Second), end: func(w *world) { exit(w.pods[0], 3, "", time.Second) },
			want: want{status: "DeadLetter RetriesExhausted", message: "failed 1 times, spec.retryPolicy.maxRetries is 0; last ProgramFailed", exitCode: ptr.To[int32](3)},
		},
		"one member of a gang fails": {
			job: gang(), end: func(w *world) { exit(w.pods[1], 3, "", time.Second) },
			want: want{status: "Retrying ProgramFailed", message: "pod train-1-0 on node b", retries: 1, pause: true, exitCode: ptr.To[int32](3), place: true},
		},
		"the cause is told, not who followed": {
			job: gang(), end: func(w *world) { exit(w.pods[0], 75, "", time.Second); exit(w.pods[1], 3, "", 2*time.Second) },
			want: want{status: "Retrying ProgramFailed", message: "pod train-1-0", retries: 1, pause: true, exitCode: ptr.To[int32](3)},
		},
		"a gang that lost its peers for no known cause": {
			job: gang(), end: func(w *world) { exit(w.pods[0], 75, "", 0) }, after: podend.CauseDelay,
			want: want{status: "Retrying PeerLost", retries: 1, pause: true, exitCode: ptr.To[int32](75), place: true},
		},
		"evicted": {
			job: gang(), end: func(w *world) { disrupt(w.pods[0], "EvictionByEvictionAPI") },
			want: want{status: "Queued Evicted", message: "does not count as a retry", preemptions: 1, place: true},
		},
		"its node is gone": {
			job: job(), end: func(w *world) { disrupt(w.pods[0], "DeletionByPodGC") },
			want: want{status: "Queued NodeLost", preemptions: 1},
		},
		"its node was shut down": {
			job: job(), end: func(w *world) { exit(w.pods[0], 143, "", time.Second).Status.Reason = "Terminated" },
			want: want{status: "Queued NodeShutdown", preemptions: 1},
		},
		"preempted by kube-scheduler": {
			job: job(), end: func(w *world) { disrupt(w.pods[0], "PreemptionByScheduler") },
			want: want{status: "Queued PodPreempted", preemptions: 1},
		},
		"over its own storage limit": {
			job: job(), end: func(w *world) {
				w.pods[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "Container job exceeded its local ephemeral storage limit"}
			},
			want: want{status: "Retrying StorageLimitExceeded", message: "raise spec.resources.limits.ephemeral-storage", retries: 1, pause: true},
		},
		"a user deletes its pod": {
			job: job(), end: func(w *world) { deleted(w.pods[0], time.Second) },
			want: want{status: "Queued PodDeleted", preemptions: 1, place: true},
		},
		"its pod has vanished": {
			job: gang(), end: func(w *world) { w.pods = w.pods[:1] },
			want: want{status: "Queued PodDeleted", message: "pod train-1-0 is gone", preemptions: 1, place: true},
		},
		"it takes too long": {
			job: job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.TimeoutSeconds = ptr.To[int64](60) }), end: func(*world) {}, after: time.Minute,
			want: want{status: "Retrying DeadlineExceeded", message: "ran longer than spec.timeoutSeconds (60)", retries: 1, pause: true, place: true},
		},
		"it loses its place": {
			job: job(), end: func(w *world) { w.preempted() },
			want: want{status: "Queued Preempted", message: "preempted by AIJob team/urgent (priority 90, this job has 50)", preemptions: 1, place: true},
		},
		"it loses its place while it starts": {
			job: job(), pending: true, end: func(w *world) { w.preempted() },
			want: want{status: "Queued Preempted", preemptions: 1, place: true},
		},
		"it is cancelled": {
			job: job(), end: func(w *world) { w.job.Spec.Cancel = ptr.To(true) },
			want: want{status: "Cancelled Cancelled", place: true},
		},
		"its image has no name": {
			job: job(), pending: true, end: func(w *world) { hung(w.pods[0], "InvalidImageName", "couldn't parse") },
			want: want{status: "Failed InvalidImageName", message: "spec.image is not a valid image reference: couldn't parse", place: true},
		},
		"a Secret is missing": {
			job: job(), pending: true, end: func(w *world) { hung(w.pods[0], "CreateContainerConfigError", `secret "x" not found`) }, after: 2 * time.Minute,
			want: want{status: "Failed ContainerConfigError", message: `secret "x" not found`, place: true},
		},
		"its image cannot be pulled": {
			job: job(), pending: true, end: func(w *world) { hung(w.pods[0], "ImagePullBackOff", "not found") }, after: 5 * time.Minute,
			want: want{status: "Retrying ImagePullFailed", message: "cannot pull image registry.example.com/infer:1, for 5m0s: not found", retries: 1, pause: true, place: true},
		},
		"its pod is not placed": {
			job: job(), pending: true, end: func(w *world) { w.pods[0].Spec.NodeName = "" }, after: time.Minute,
			want: want{
				status: "Retrying Unschedulable", preemptions: 1, pause: true, place: true,
				message: "was not bound to its node within 1m0s: scheduler default-scheduler has not looked at it for 1m0s: see whether it runs",
			},
		},
		"its pod is for a scheduler that is not there": {
			job: job(), pending: true, end: func(w *world) { w.pods[0].Spec = corev1.PodSpec{SchedulerName: "no-such"} }, after: time.Minute,
			want: want{
				status: "Retrying Unschedulable", preemptions: 1, pause: true, place: true,
				message: "scheduler no-such has not looked at it for 1m0s: see whether it runs",
			},
		},
		"its pod is refused by the scheduler": {
			job: job(), pending: true, end: func(w *world) {
				w.pods[0].Spec.NodeName = ""
				w.pods[0].Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available.",
				}}
			}, after: time.Minute,
			want: want{
				status: "Retrying Unschedulable", preemptions: 1, pause: true, place: true,
				message: "was not bound to its node within 1m0s: 0/1 nodes are available",
			},
		},
		"its pod does not start": {
			job: job(), pending: true, end: func(w *world) { hung(w.pods[0], "ContainerCreating", "") }, after: 30 * time.Minute,
			want: want{status: "Retrying PodsNotStarted", preemptions: 1, pause: true, place: true},
		},
		"the kubelet refuses its pod": {
			job: job(), pending: true, end: func(w *world) { w.pods[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"} },
			want: want{status: "Retrying NodeRefused", preemptions: 1, pause: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(test.job)
			nodes := []string{"a", "b"}[:membersOf(w.job)]
			if test.pending {
				w.scheduled(nodes...)
				for i, node := range nodes {
					w.pod(int32(i), node, corev1.PodPending)
				}
			} else {
				w.running(nodes...)
			}
			test.end(w)
			if test.after > 0 {
				before := *w
				before.job = w.job.DeepCopy()
				before.job.Status = plan(before.at(test.after - time.Millisecond).observed).status
				early := plan(before.observed)
				assert.Equal(t, w.job.Status.Phase, early.status.Phase, "not before its time")
				assert.Equal(t, time.Millisecond, early.again)
			}
			w.at(test.after)

			d := plan(w.observed)

			assert.Empty(t, steps(d), "the status is written first")
			assert.Equal(t, test.want.status, short(d.status))
			assert.Contains(t, d.status.Message, test.want.message)
			assert.Equal(t, test.want.retries, d.status.RetryCount)
			assert.Equal(t, test.want.preemptions, d.status.PreemptionCount)
			assert.Equal(t, test.want.pause, d.status.NextRetryTime != nil)
			assert.Equal(t, test.want.exitCode, d.status.ExitCode)
			assert.Equal(t, test.want.place, len(d.status.Assignments) > 0, "its place is held until all pods have ended")
			if failed := d.status.Phase == "Failed" || d.status.Phase == "DeadLetter"; failed {
				assert.Equal(t, "True "+d.status.Reason, conditions(d.status)["Failed"])
				assert.NotNil(t, d.status.CompletionTime)
			}

			// Then what still runs is stopped, and the place is free once it has ended.
			w.job.Status = d.status
			d = plan(w.observed)
			for _, pod := range w.pods {
				if !podend.IsEnded(pod) && pod.DeletionTimestamp == nil {
					assert.Contains(t, steps(d), "stop "+pod.Name)
				}
			}
			w.pods = nil
			w.decided = false
			d = plan(w.observed)
			assert.Empty(t, d.status.Assignments)
		})
	}
}

func TestNothingEndsATryTooEarly(t *testing.T) {
	w := worldOf(gang()).running("a", "b")
	exit(w.pods[0], 75, "", 0)
	d := plan(w.observed)
	assert.Equal(t, "Running Running", short(d.status), "the cause may follow")
	assert.Equal(t, podend.CauseDelay, d.again)

	disrupt(w.pods[1], "DeletionByPodGC")
	assert.Equal(t, "Queued NodeLost", short(plan(w.observed).status))
}

func TestRetriesComeAfterGrowingPausesAndEndInDeadLetter(t *testing.T) {
	w := worldOf(job().Retries(3, 10*time.Second).Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.RetryPolicy.MaxBackoff.Duration = 30 * time.Second }))
	clock := time.Duration(0)
	for try, least := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
		w.at(clock).running("a")
		assert.Equal(t, podName("infer", 0, int32(try)), w.pods[0].Name)
		exit(w.pods[0], 1, "", clock)
		d := plan(w.observed)
		pause := d.status.NextRetryTime.Sub(w.now)
		assert.GreaterOrEqual(t, pause, least)
		assert.LessOrEqual(t, pause, least+time.Duration(float64(least)*jitter)+time.Second)
		assert.Equal(t, d.status.NextRetryTime, plan(w.observed).status.NextRetryTime, "the same at every look")

		w.job.Status, w.pods = d.status, nil
		clock += pause
		d = plan(w.at(clock - time.Millisecond).observed)
		assert.Equal(t, aiplatformv1alpha1.AIJobRetrying, d.status.Phase)
		assert.Equal(t, time.Millisecond, d.again)
		d = plan(w.at(clock).observed)
		assert.Equal(t, "Queued Retrying", short(d.status))
		assert.Equal(t, w.now, d.status.QueuedTime.Time)
		assert.Nil(t, d.status.NextRetryTime)
		w.job.Status = d.status
	}
	w.running("a")
	exit(w.pods[0], 1, "", clock)
	d := plan(w.observed)
	assert.Equal(t, "DeadLetter RetriesExhausted", short(d.status))
	assert.Equal(t, int32(3), d.status.RetryCount)
	assert.Equal(t, "False RetriesExhausted", conditions(d.status)["Ready"])
}

func TestDeadLetterComesBackWithAllItsRetries(t *testing.T) {
	w := worldOf(job().Retries(1, time.Second).Status(func(s *aiplatformv1alpha1.AIJobStatus) { s.RetryCount = 1 })).running("a")
	exit(w.pods[0], 1, "", time.Second)
	w.job.Status = plan(w.observed).status
	require.Equal(t, "DeadLetter RetriesExhausted", short(w.job.Status))
	assert.Equal(t, "DeadLetter RetriesExhausted", short(plan(w.at(time.Hour).observed).status))

	w.job.Annotations = map[string]string{aiplatformv1alpha1.AnnotationRequeue: "true"}
	d := plan(w.observed)
	assert.Equal(t, "Queued Requeued", short(d.status))
	assert.NotContains(t, conditions(d.status), "Failed")
	assert.Nil(t, d.status.CompletionTime)

	w.job.Status = d.status
	w.admitted("a")
	d = plan(w.observed)
	assert.Equal(t, "forget the requeue", steps(d), "before anything else")
	w.job.Annotations = map[string]string{aiplatformv1alpha1.AnnotationRetriesBefore: "2"}
	w.pods = nil
	w.running("a")
	assert.Equal(t, "infer-0-2", w.pods[0].Name, "no pod has the name of an earlier one")
	exit(w.pods[0], 1, "", time.Hour)
	assert.Equal(t, "Retrying ProgramFailed", short(plan(w.observed).status), "its retry is available again")
}

func TestPodsOfOldTriesGo(t *testing.T) {
	w := worldOf(job().Status(func(s *aiplatformv1alpha1.AIJobStatus) { s.RetryCount = 0 }))
	for try := range int32(3) {
		w.job.Status.RetryCount = try
		exit(w.pod(0, "a", corev1.PodFailed), 1, "", 0)
	}
	w.job.Status.RetryCount = 3
	w.scheduled("b")
	assert.Equal(t, "prune infer-0-0, prune infer-0-1, create 0 on b", steps(plan(w.observed)), "the last try's logs stay")
}

func TestAPlaceIsNotGivenWhileTheLastIsHeld(t *testing.T) {
	w := worldOf(job()).running("a")
	w.preempted()
	w.job.Status = plan(w.observed).status
	deleted(w.pods[0], 0)
	w.admitted("b")
	d := plan(w.observed)
	assert.Equal(t, "Queued Preempted", short(d.status))
	assert.NotEmpty(t, d.status.Assignments)
}

func TestTimeToLive(t *testing.T) {
	w := worldOf(job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](60) })).running("a")
	exit(w.pods[0], 0, "", time.Second)
	w.job.Status = plan(w.observed).status
	d := plan(w.at(59 * time.Second).observed)
	assert.Empty(t, steps(d))
	assert.Equal(t, time.Second, d.again)
	assert.Equal(t, "delete the job", steps(plan(w.at(time.Minute).observed)))

	w.job.Status.Phase = aiplatformv1alpha1.AIJobDeadLetter
	assert.Empty(t, steps(plan(w.at(time.Hour).observed)), "what is in DeadLetter stays")
}

func TestLookingAgainChangesNothing(t *testing.T) {
	for name, w := range map[string]*world{
		"waiting":   worldOf(job()).waits(1, "QuotaReached", "full"),
		"admitted":  worldOf(gang()).admitted("a", "b"),
		"running":   worldOf(gang()).running("a", "b"),
		"scheduled": worldOf(gang()).scheduled("a", "b"),
	} {
		t.Run(name, func(t *testing.T) {
			w.job.Status = plan(w.observed).status
			before := w.job.DeepCopy()
			d := plan(w.at(10 * time.Minute).observed)
			if name != "admitted" && name != "scheduled" { // which lack their pods
				assert.Equal(t, before.Status, d.status)
				assert.Empty(t, steps(d))
			}
			assert.Equal(t, before, w.job, "what was observed is not changed")
		})
	}
}

func TestRefusalsOfTheCluster(t *testing.T) {
	w := worldOf(gang()).scheduled("a", "b")
	for name, test := range map[string]struct {
		found *failure
		want  string
	}{
		"for now":     {&failure{kind: refused, reason: "ResourceQuotaExceeded"}, "Retrying ResourceQuotaExceeded"},
		"permanently": {&failure{kind: hopeless, reason: "PodSecurityViolation"}, "Failed PodSecurityViolation"},
	} {
		t.Run(name, func(t *testing.T) {
			status := refuse(w.observed, test.found)
			assert.Equal(t, test.want, short(status))
			assert.Empty(t, status.Assignments)
			assert.Zero(t, status.RetryCount)
		})
	}
}

func TestPodsThatTheirSidecarsOutliveAreEnded(t *testing.T) {
	w := worldOf(job()).running("a")
	pod := exit(w.pods[0], 0, "", time.Minute)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	})
	d := plan(w.observed)
	assert.Equal(t, []podend.Outlived{{Pod: pod, Phase: corev1.PodSucceeded, Others: []string{"proxy"}}}, d.outlived)
	assert.Equal(t, aiplatformv1alpha1.AIJobRunning, d.status.Phase)
}
