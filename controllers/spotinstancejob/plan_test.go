package spotinstancejob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const hour = time.Hour

func name(index int, at time.Duration) string {
	return checkpointName("bert", index, checkpointNumber("uid-of-bert", builders.Noon.Add(at)))
}

func TestPlan(t *testing.T) {
	saved := func(w *world) { w.backup(0, 10*time.Minute, checkpointbackup.Completed, "") }
	tests := map[string]struct {
		job  *builders.SpotInstanceJobBuilder
		with func(*world)
		want []string
		// phase of the job and of its replicas.
		phase    spotv1alpha1.JobPhase
		replicas map[string]spotv1alpha1.ReplicaPhase
		count    int32 // of preemptions
	}{
		"a new job gets its replicas": {
			job: spotJob(), with: func(*world) {}, want: []string{"create bert-0", "create bert-1"}, phase: "Pending",
		},
		"none starts without its Secret": {
			job: spotJob(), with: func(w *world) { w.secretProblem = "missing" }, phase: "Pending",
		},
		"replicas that run are left alone": {
			job:   spotJob(),
			with:  func(w *world) { w.runs(0, 0, "a"); w.runs(1, 0, "b") },
			phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Running", "bert-1": "Running"},
		},
		"a replica more starts from the newest checkpoint of any": {
			job:  spotJob().Checkpoints(hour),
			with: func(w *world) { w.at(30*time.Minute).runs(0, 0, "a"); saved(w) },
			want: []string{"create bert-1 from " + name(0, 20*time.Minute)}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Running"},
		},
		"a job that was restored from a backup with its status starts from the newest checkpoint": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				w.at(30*time.Minute).runs(0, 0, "a")
				w.runs(1, 0, "b")
				saved(w)
				w.job.Status = plan(w.observed).status
				w.job.UID, w.jobs, w.pods, w.backups = "another", nil, nil, nil
			},
			want: []string{"create bert-0-r1 from " + name(0, 20*time.Minute), "create bert-1-r1 from " + name(0, 20*time.Minute)}, phase: "Pending",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Pending"},
		},
		"a replica less is removed": {
			job:  spotJob().Replicas(1),
			with: func(w *world) { w.runs(0, 0, "a"); w.runs(1, 0, "b") },
			want: []string{"remove bert-1"}, phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Running"},
		},
		"a notice: the checkpoint is asked for and the loss counted, before anything is stopped": {
			job:  spotJob().Checkpoints(hour),
			with: func(w *world) { w.runs(0, 0, "a"); w.runs(1, 0, "b"); w.notice("a", 0) },
			want: []string{"checkpoint bert-0-pod for bert-0"}, phase: "Recovering", count: 1,
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"the checkpoint is waited for": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", 10*time.Second)
				w.backup(0, 10*time.Second, checkpointbackup.ImagePushing, "bert-0")
			},
			phase: "Recovering", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"until it is complete": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", 10*time.Second)
				w.backup(0, 10*time.Second, checkpointbackup.Completed, "bert-0")
			},
			want: []string{"retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"or the node is about to go": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", 26*time.Second)
				w.backup(0, 25*time.Second, checkpointbackup.ImagePushing, "bert-0")
			},
			want: []string{"retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"or would go, had the notice said when it came": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", 0)
				w.backup(0, 25*time.Second, checkpointbackup.ImagePushing, "bert-0")
			},
			want: []string{"retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"without checkpoints a replica is replaced as soon as it is counted": {
			job: spotJob(),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", time.Second)
			},
			want: []string{"retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"nothing starts while the Job controller has not stopped the old Job": {
			job: spotJob(),
			with: func(w *world) {
				job := w.attempt(0, 0, annotationRetired, retiredPreempted)
				job.Spec.Suspend = ptr.To(true)
				w.knows(job, "Preempted")
				w.runs(1, 0, "b")
			},
			phase: "Recovering", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"nothing starts while a pod of the old Job runs, though its node does not answer": {
			job: spotJob(),
			with: func(w *world) {
				job := w.attempt(0, 0, annotationRetired, retiredPreempted)
				stop(job)
				w.knows(job, "Preempted")
				pod := w.pod(job, "a")
				pod.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
				w.nodes["a"].ready = false
				w.runs(1, 0, "b")
			},
			phase: "Recovering", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"a pod on a node that is gone is expelled": {
			job: spotJob(),
			with: func(w *world) {
				job := w.attempt(0, 0, annotationRetired, retiredPreempted)
				stop(job)
				w.knows(job, "Preempted")
				w.pod(job, "a")
				w.nodes["a"] = &node{gone: true}
				w.runs(1, 0, "b")
			},
			want: []string{"expel bert-0-pod"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"the replica starts again from its last checkpoint": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job := w.at(30*time.Minute).attempt(0, 0, annotationRetired, retiredPreempted)
				stop(job)
				w.knows(job, "Preempted")
				w.runs(1, 0, "b")
				w.backup(1, 5*time.Minute, checkpointbackup.Completed, "")
				w.backup(0, 30*time.Second, checkpointbackup.Completed, "bert-0")
			},
			want: []string{"create bert-0-r1 from " + name(0, 29*time.Minute+30*time.Second)}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"and the old Job is removed": {
			job: spotJob(),
			with: func(w *world) {
				stop(w.attempt(0, 0, annotationRetired, retiredPreempted))
				w.runs(0, 1, "c")
				w.runs(1, 0, "b")
			},
			want: []string{"remove bert-0"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0-r1": "Running", "bert-1": "Running"},
		},
		"a replica that is lost at once: another that runs is saved": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				w.at(30*time.Minute).runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.nodes["a"] = &node{gone: true}
				saved(w)
			},
			want: []string{"checkpoint bert-1-pod for bert-0"}, phase: "Recovering", count: 1,
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"its Job is stopped before its pod is expelled": {
			job: spotJob(),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.nodes["a"] = &node{gone: true}
			},
			want: []string{"retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"a pod that the Job made meanwhile from an old state does not count": {
			job: spotJob(),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "c")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.job.Status.JobStatuses[0].NodeName = "a"
			},
			want: []string{"retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"a notice that was withdrawn is forgotten": {
			job: spotJob(),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.job.Status.JobStatuses[0].NodeName = "a"
			},
			phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Running", "bert-1": "Running"},
		},
		"the lost replica waits for that checkpoint": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job := w.at(30*time.Minute).attempt(0, 0, annotationRetired, retiredPreempted)
				stop(job)
				w.knows(job, "Preempted")
				w.runs(1, 0, "b")
				w.backup(1, 10*time.Second, checkpointbackup.Checkpointing, "bert-0")
			},
			phase: "Recovering", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"none else alive: the newest checkpoint": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				w.at(30 * time.Minute)
				for i := range 2 {
					job := w.attempt(i, 0, annotationRetired, retiredPreempted)
					stop(job)
					w.knows(job, "Preempted")
				}
				saved(w)
			},
			want: []string{"create bert-0-r1 from " + name(0, 20*time.Minute), "create bert-1-r1 from " + name(0, 20*time.Minute)}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Preempted"},
		},
		"its own last checkpoint failed: another is saved": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, _ := w.at(30*time.Minute).runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", 10*time.Second)
				w.backup(0, 10*time.Second, checkpointbackup.Failed, "bert-0")
			},
			want: []string{"checkpoint bert-1-pod for bert-0", "retire bert-0: Preempted"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"a pod that Kubernetes took away is no failure": {
			job: spotJob(),
			with: func(w *world) {
				job, pod := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				disrupt(pod)
				w.fail(job, batchv1.JobReasonPodFailurePolicy)
				w.knows(job, "Preempted")
			},
			want: []string{"create bert-0-r1"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"a failure waits before the next try": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, pod := w.at(30*time.Minute).runs(0, 0, "a")
				w.runs(1, 0, "b")
				exit(pod, 1, 20*time.Minute)
				w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
			},
			phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"and starts from the checkpoint, counted": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job, pod := w.at(30*time.Minute).runs(0, 0, "a")
				w.runs(1, 0, "b")
				exit(pod, 1, 20*time.Minute)
				w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
				w.at(31 * time.Minute)
				saved(w)
			},
			want: []string{"create bert-0-r1 from " + name(0, 21*time.Minute) + " after 1 failures"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"a failure soon after a start from a checkpoint: the one before it": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				w.at(31 * time.Minute)
				job := w.attempt(0, 1, annotationStartedFrom, name(0, 21*time.Minute), annotationFailures, "2")
				exit(w.pod(job, "a"), 1, 3*time.Second)
				w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
				w.runs(1, 0, "b")
				saved(w)
				w.backup(0, 20*time.Minute, checkpointbackup.Completed, "")
				w.at(33 * time.Minute)
			},
			want: []string{"create bert-0-r2 from " + name(0, 11*time.Minute) + " after 3 failures"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0-r1": "Pending", "bert-1": "Running"},
		},
		"too many failures": {
			job: spotJob().Checkpoints(hour).Template(func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](2) }),
			with: func(w *world) {
				job := w.attempt(0, 2, annotationFailures, "2")
				exit(w.pod(job, "a"), 1, hour)
				w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
				w.runs(1, 0, "b")
			},
			phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0-r2": "Failed", "bert-1": "Running"},
		},
		"without checkpoints the Job controller counts failures": {
			job: spotJob(),
			with: func(w *world) {
				job, pod := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				exit(pod, 1, hour)
				w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
			},
			phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Failed", "bert-1": "Running"},
		},
		"a pod that was deleted is no failure": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job := w.attempt(0, 0)
				w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
				w.runs(1, 0, "b")
				w.at(time.Minute)
			},
			want: []string{"create bert-0-r1"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"a Job that was deleted is created again under another name": {
			job: spotJob(),
			with: func(w *world) {
				w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.jobs, w.pods = w.jobs[1:], w.pods[1:]
			},
			want: []string{"create bert-0-r1"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"but not while its pod runs": {
			job: spotJob(),
			with: func(w *world) {
				w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.jobs = w.jobs[1:]
			},
			phase: "Running", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"a checkpoint that cannot be started from is given up": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job := w.attempt(0, 1, annotationStartedFrom, "x")
				pod := w.pod(job, "a")
				pod.Status.Phase = corev1.PodPending
				pod.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now),
				}}
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError"},
				}}}
				w.runs(1, 0, "b")
				w.at(2 * time.Minute)
			},
			want: []string{"retire bert-0-r1: CheckpointUnusable"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0-r1": "Pending", "bert-1": "Running"},
		},
		"suspension is passed on": {
			job: spotJob().Template(func(s *batchv1.JobSpec) { s.Suspend = ptr.To(true) }),
			with: func(w *world) {
				w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				w.jobs[0].Spec.Suspend = nil
				w.jobs[1].Spec.Suspend = nil
			},
			want: []string{"suspend bert-0", "suspend bert-1"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Running", "bert-1": "Running"},
		},
		"after it a replica goes on from its checkpoint": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				stop(w.at(30*time.Minute).attempt(0, 0))
				w.runs(1, 0, "b")
				saved(w)
			},
			want: []string{"retire bert-0: Resumed"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"or where there is none, from the start": {
			job:  spotJob(),
			with: func(w *world) { stop(w.attempt(0, 0)); w.runs(1, 0, "b") },
			want: []string{"resume bert-0"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"one replica that succeeds is enough": {
			job: spotJob(),
			with: func(w *world) {
				job, pod := w.runs(0, 0, "a")
				w.runs(1, 0, "b")
				exit(pod, 0, hour)
				job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			},
			want: []string{"remove bert-1"}, phase: "Succeeded", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Succeeded"},
		},
		"the job fails when all replicas have": {
			job: spotJob(),
			with: func(w *world) {
				for i := range 2 {
					job, pod := w.runs(i, 0, "a")
					exit(pod, 1, hour)
					w.fail(job, batchv1.JobReasonBackoffLimitExceeded)
				}
			},
			phase: "Failed", replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Failed", "bert-1": "Failed"},
		},
		"a Job that Kueue manages cannot be stopped by suspending it": {
			job: spotJob(),
			with: func(w *world) {
				job, _ := w.runs(0, 0, "a")
				job.Labels[kueueQueue] = "team"
				w.runs(1, 0, "b")
				w.knows(job, "Preempted")
				w.notice("a", 0)
			},
			want: []string{"remove bert-0"}, phase: "Recovering",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Preempted", "bert-1": "Running"},
		},
		"one that Kueue has stopped waits with its newest checkpoint": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job := w.attempt(0, 0)
				job.Labels[kueueQueue] = "team"
				stop(job)
				w.runs(1, 0, "b")
				w.at(30*time.Minute).backup(0, 10*time.Minute, checkpointbackup.Completed, "")
			},
			want: []string{"remove bert-0"}, phase: "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
		"and stays in the queue when only another has saved since": {
			job: spotJob().Checkpoints(hour),
			with: func(w *world) {
				job := w.attempt(0, 0)
				job.Labels[kueueQueue] = "team"
				stop(job)
				w.runs(1, 0, "b")
				w.at(30*time.Minute).backup(1, 10*time.Minute, checkpointbackup.Completed, "")
			},
			phase:    "Running",
			replicas: map[string]spotv1alpha1.ReplicaPhase{"bert-0": "Pending", "bert-1": "Running"},
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			w := worldOf(test.job)
			test.with(w)
			before := w.job.DeepCopy()

			d := plan(w.observed)

			assert.Equal(t, test.want, steps(d))
			assert.Equal(t, test.phase, d.status.Phase)
			if test.replicas == nil {
				test.replicas = map[string]spotv1alpha1.ReplicaPhase{}
			}
			assert.Equal(t, test.replicas, replicaPhases(d.status))
			assert.Equal(t, test.count, d.status.PreemptionCount)
			assert.Empty(t, cmp.Diff(before, w.job), "what is observed must not be changed")
		})
	}
}

func TestWhenANodeIsLost(t *testing.T) {
	now := builders.Noon
	notice := func(source nodenotice.Source, ago time.Duration) *nodenotice.Notice {
		return &nodenotice.Notice{Source: source, Deadline: now.Add(-ago)}
	}
	tests := map[string]struct {
		node *node
		want bool
	}{
		"nothing is known":                        {nil, false},
		"it does not exist":                       {&node{gone: true}, true},
		"an administrator says so":                {&node{outOfService: true, ready: true}, true},
		"it does not answer":                      {&node{}, false},
		"its provider has surely taken it":        {&node{notice: notice(nodenotice.MetadataServer, time.Minute)}, true},
		"its provider has, and yet it answers":    {&node{ready: true, notice: notice(nodenotice.ComputeOperation, time.Minute)}, false},
		"its time has hardly passed":              {&node{notice: notice(nodenotice.MetadataServer, 10*time.Second)}, false},
		"an autoscaler may not have taken it yet": {&node{notice: notice(nodenotice.Taint, hour)}, false},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) { assert.Equal(t, test.want, test.node.isLost(now)) })
	}
}

func TestAnEndedJobIsCleanedUp(t *testing.T) {
	b := spotJob().Template(func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](60) })
	w := worldOf(b)
	job, pod := w.runs(0, 0, "a")
	exit(pod, 0, hour)
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	job.Status.CompletionTime = ptr.To(metav1.NewTime(builders.Noon))
	first := plan(w.at(2 * time.Minute).observed)
	require.Equal(t, spotv1alpha1.JobSucceeded, first.status.Phase)
	assert.Empty(t, steps(first), "not before the end is written")

	w.job.Status = first.status
	assert.Equal(t, []string{"remove bert-0"}, steps(plan(w.observed)))

	early := plan(w.at(30 * time.Second).observed)
	assert.Empty(t, steps(early))
	assert.Equal(t, 30*time.Second, early.again)
	assert.Empty(t, cmp.Diff(w.job.Status, early.status))
}

func TestAnEndedJobSpeaksOfItsNewestSpec(t *testing.T) {
	for _, phase := range []spotv1alpha1.JobPhase{spotv1alpha1.JobSucceeded, spotv1alpha1.JobFailed} {
		w := worldOf(spotJob())
		w.job.Generation = 4
		w.job.Status = spotv1alpha1.SpotInstanceJobStatus{Phase: phase, ObservedGeneration: 3, CompletionTime: ptr.To(metav1.NewTime(builders.Noon))}
		is := plan(w.observed).status
		assert.Equal(t, int64(4), is.ObservedGeneration, "tools take an older one for a job that is at work")
		is.ObservedGeneration = 3
		assert.Empty(t, cmp.Diff(w.job.Status, is), "nothing else changes")
	}
}

func TestAPlanIsMadeOnce(t *testing.T) {
	w := worldOf(spotJob().Checkpoints(hour).On("t4"))
	w.vm = &spotv1alpha1.SpotInstanceVM{}
	w.runs(0, 0, "a")
	w.runs(1, 0, "b")
	first := plan(w.observed)
	w.job.Status = first.status
	second := plan(w.at(10 * time.Minute).observed)
	assert.Empty(t, steps(second))
	assert.Empty(t, cmp.Diff(first.status, second.status), "looking again is no change")
	assert.Equal(t, 50*time.Minute, second.again)
}
