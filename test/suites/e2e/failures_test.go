//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// running is a program that runs until it is told to stop.
const running = `trap 'exit 143' TERM; while :; do sleep 0.1; done`

// program is a job of one worker that runs a shell script instead of a training.
func program(namespace, name, script string) *mlv1.TrainingJob {
	job := digits(namespace, name).obj()
	job.Spec.NumWorkers, job.Spec.Checkpoint, job.Spec.Hyperparameters = 1, nil, nil
	job.Spec.Command, job.Spec.Args = []string{"/bin/sh", "-c"}, []string{script}
	job.Spec.Monitoring.Enabled = ptr.To(false)
	job.Spec.FailurePolicy.BackoffLimit = ptr.To[int32](0)
	job.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return job
}

// fails runs a program whose job becomes Failed, and returns what the status says of it.
func fails(t *testing.T, job *mlv1.TrainingJob) *mlv1.TrainingJob {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), job))
	failed := reaches(t, job, "it is Failed", inState(mlv1.StateFailed))
	assert.Equal(t, reasons.BackoffLimitExceeded, failed.Status.Reason)
	require.NotNil(t, failed.Status.LastFailure)
	assert.True(t, failed.Status.LastFailure.Counted)
	assert.Zero(t, failed.Status.DisruptionCount)
	told(t, job, "Failed", failed.Status.FailureReason)
	return failed
}

// told waits for an event of a job whose note has a text in it.
func told(t *testing.T, job *mlv1.TrainingJob, reason, text string) {
	t.Helper()
	eventually(t, "an event "+reason+" tells "+text, func(ctx context.Context) (bool, error) {
		events, err := cluster.typed.EventsV1().Events(job.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, event := range events.Items {
			if event.Regarding.Name == job.Name && event.Reason == reason && strings.Contains(event.Note, text) {
				return true, nil
			}
		}
		return false, nil
	})
}

// waitsFor runs a job that cannot start, and waits until its status and an event say why.
func waitsFor(t *testing.T, job *mlv1.TrainingJob, reason string, texts ...string) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it waits for "+reason, func(job *mlv1.TrainingJob) bool {
		condition := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionInitialized)
		if job.Status.Reason != reason || condition == nil {
			return false
		}
		for _, text := range texts {
			if !strings.Contains(condition.Message, text) {
				return false
			}
		}
		return condition.Reason == reason
	})
	told(t, job, reason, texts[0])
}

// isLost waits until a job has lost a worker, which is not counted though no failure is allowed.
func isLost(t *testing.T, job *mlv1.TrainingJob, reason string, texts ...string) {
	t.Helper()
	lost := reaches(t, job, "a worker is lost", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	require.NotNil(t, lost.Status.LastFailure)
	assert.Equal(t, reason, lost.Status.LastFailure.Reason)
	assert.False(t, lost.Status.LastFailure.Counted)
	assert.NotEmpty(t, lost.Status.LastFailure.NodeName)
	assert.Equal(t, int32(1), lost.Status.DisruptionCount)
	assert.Equal(t, reason, meta.FindStatusCondition(lost.Status.Conditions, reasons.ConditionRestarting).Reason)
	for _, text := range texts {
		assert.Contains(t, lost.Status.FailureReason, text)
	}
	told(t, job, "Restarting", lost.Status.FailureReason)
}

func TestFailureExitCode(t *testing.T) {
	t.Parallel()
	// The container runtime may report the end of a program before the last line of the program is in the log.
	failed := fails(t, program(namespace(t), "code", "echo cannot go on >&2; sleep 1; exit 3"))
	assert.Equal(t, reasons.ProgramFailed, failed.Status.LastFailure.Reason)
	assert.Equal(t, ptr.To[int32](3), failed.Status.LastFailure.ExitCode)
	assert.Contains(t, failed.Status.FailureReason, "ended with exit code 3: cannot go on")
}

func TestFailureSignal(t *testing.T) {
	t.Parallel()
	// Kubernetes makes one $ of two.
	failed := fails(t, program(namespace(t), "signal", `/bin/sh -c 'kill -s SEGV $$$$'; exit $?`))
	assert.Equal(t, reasons.ProgramKilled, failed.Status.LastFailure.Reason)
	assert.Contains(t, failed.Status.FailureReason, "was killed by signal 11 (exit code 139)")
}

func TestFailureOutOfMemory(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "memory", `exec /usr/bin/python3 -c 'x = b"x" * 2000000000'`)
	job.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	failed := fails(t, job)
	assert.Equal(t, reasons.OutOfMemory, failed.Status.LastFailure.Reason)
	assert.Contains(t, failed.Status.FailureReason, "raise spec.resources.limits.memory")
}

func TestFailureProgramThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "start", "")
	job.Spec.Command, job.Spec.Args = []string{"/no/such/program"}, nil
	failed := fails(t, job)
	assert.Equal(t, reasons.ContainerStartFailed, failed.Status.LastFailure.Reason)
	assert.Contains(t, failed.Status.FailureReason, "/no/such/program")
}

func TestFailureImagePull(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "image", "")
	job.Spec.Image = "127.0.0.1:1/none:none"
	waitsFor(t, job, reasons.ImagePullFailed, "cannot pull image 127.0.0.1:1/none:none", "correct spec.image")
}

func TestFailureMissingSecretStartsOnceItExists(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	job := program(ns, "secret", "test $TOKEN = t")
	job.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "forgotten"}, Key: "token",
	}}}}
	waitsFor(t, job, reasons.ContainerConfigError, `secret "forgotten" not found`, "once what it lacks exists in namespace "+ns)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forgotten"}, StringData: map[string]string{"token": "t"}}
	require.NoError(t, cluster.Create(t.Context(), secret))
	done := completes(t, job)
	assert.Zero(t, done.Status.RestartCount)
}

func TestFailureMissingConfigMap(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "config", "true")
	job.Spec.Env = []corev1.EnvVar{{Name: "SETTING", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "forgotten"}, Key: "setting",
	}}}}
	waitsFor(t, job, reasons.ContainerConfigError, `configmap "forgotten" not found`)
}

func TestFailureUnschedulable(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "nowhere", "true")
	job.Spec.Scheduling = &mlv1.Scheduling{NodeSelector: map[string]string{"no-such": "node"}}
	waitsFor(t, job, reasons.Unschedulable, "fits on no node", "widen spec.scheduling")
}

// podQuota keeps more pods than so many out of a namespace.
func podQuota(t *testing.T, namespace, pods string) *corev1.ResourceQuota {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}},
	}
	require.NoError(t, cluster.Create(t.Context(), quota))
	eventually(t, "the quota is counted", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return len(quota.Status.Hard) > 0, err
	})
	return quota
}

func TestFailureQuota(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	quota := podQuota(t, ns, "0")
	job := program(ns, "quota", "true")
	waitsFor(t, job, reasons.ResourceQuotaExceeded, "exceeded quota: small", "free or raise the quota")

	quota.Spec.Hard[corev1.ResourcePods] = resource.MustParse("10")
	require.NoError(t, cluster.Update(t.Context(), quota))
	completes(t, job)
}

func TestFailureEviction(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "evicted", running)
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it runs", inState(mlv1.StateRunning))
	victim := workers(t, job)["0"]
	require.NoError(t, cluster.typed.CoreV1().Pods(job.Namespace).EvictV1(t.Context(), eviction(&victim)))
	isLost(t, job, reasons.Evicted, "was evicted through the API")
	reaches(t, job, "it runs again", inState(mlv1.StateRunning))
}

func TestFailurePodDeletedByHand(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "deleted", running)
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it runs", inState(mlv1.StateRunning))
	victim := workers(t, job)["0"]
	require.NoError(t, cluster.Delete(t.Context(), &victim))
	isLost(t, job, reasons.PodDeleted, "was deleted")
	reaches(t, job, "it runs again", inState(mlv1.StateRunning))
}

func TestFailureNodeLoss(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "node", running)
	machine := simulatedNode(t, job.Namespace)
	pin(job, machine, corev1.Toleration{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1),
	})
	require.NoError(t, cluster.Create(t.Context(), job))
	runSimulated(t, job)
	// The node's lease is not renewed: after its time the cluster takes it for unreachable.
	isLost(t, job, reasons.NodeLost, "was lost with its node: the node has the taint "+corev1.TaintNodeUnreachable, machine.Name)
}

func TestFailureNodeTaintedForMaintenance(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "taint", running)
	machine := simulatedNode(t, job.Namespace)
	pin(job, machine)
	require.NoError(t, cluster.Create(t.Context(), job))
	runSimulated(t, job)
	before := machine.DeepCopy()
	machine.Spec.Taints = append(machine.Spec.Taints, corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoExecute})
	require.NoError(t, cluster.Patch(t.Context(), machine, client.MergeFrom(before)))
	isLost(t, job, reasons.NodeTainted, "example.com/maintenance:NoExecute", "spec.scheduling.tolerations")
}

func TestFailurePreemption(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "preempted", running)
	machine := simulatedNode(t, job.Namespace)
	pin(job, machine)
	job.Spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	require.NoError(t, cluster.Create(t.Context(), job))
	runSimulated(t, job)

	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: job.Namespace}, Value: 1000}
	require.NoError(t, cluster.Create(t.Context(), class))
	t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), class) })
	urgent := program(job.Namespace, "urgent", running)
	pin(urgent, machine)
	urgent.Spec.Scheduling.Priority = class.Name
	urgent.Spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	require.NoError(t, cluster.Create(t.Context(), urgent))
	isLost(t, job, reasons.PodPreempted, "was preempted for a pod with a higher priority", "spec.scheduling.priority")
}

func TestFailureDeadlineLeavesTimeForACheckpoint(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "deadline").alone().pace(300e6).obj()
	job.Spec.Checkpoint.Frequency = 100 // only the deadline saves one
	job.Spec.FailurePolicy.ActiveDeadlineSeconds = ptr.To[int64](45)
	require.NoError(t, cluster.Create(t.Context(), job))
	failed := reaches(t, job, "it is Failed", inState(mlv1.StateFailed))
	assert.Equal(t, reasons.DeadlineExceeded, failed.Status.Reason)
	assert.Equal(t, "ran longer than activeDeadlineSeconds 45", failed.Status.FailureReason)
	assert.Zero(t, failed.Status.RestartCount)
	require.NotNil(t, failed.Status.Checkpoint, "the workers saved a checkpoint before they ended")
	assertOnClaim(t, job.Namespace, failed.Status.Checkpoint)
	told(t, job, "Stopping", "DeadlineExceeded")
	told(t, job, "Failed", "DeadlineExceeded")
}

func TestFailurePodSecurity(t *testing.T) {
	t.Parallel()
	job := program(namespace(t), "root", "true")
	job.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)}
	waitsFor(t, job, reasons.PodSecurityViolation, `violates PodSecurity "restricted`, "correct spec.securityContext")
}

func TestRestrictedNamespaceTakesJobsAsTheyAre(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	var is corev1.Namespace
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Name: ns}, &is))
	require.Equal(t, "restricted", is.Labels["pod-security.kubernetes.io/enforce"])
	job := program(ns, "plain", `test "$(id -u)" = 1000`)
	require.NoError(t, cluster.Create(t.Context(), job))
	completes(t, job)
}

// A job that cannot use its place in a queue does not keep it from the next one.
func TestFailureEvictsFromTheQueue(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{GenerateName: "places-"}}
	queue.Spec.MaxConcurrency = 1
	require.NoError(t, cluster.Create(t.Context(), queue))
	t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), queue) })
	require.NoError(t, cluster.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one-pod"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}))
	queued := func(name, script string, size int32) *mlv1.TrainingJob {
		job := program(ns, name, script)
		job.Spec.NumWorkers, job.Spec.Scheduling = size, &mlv1.Scheduling{QueueName: queue.Name}
		require.NoError(t, cluster.Create(t.Context(), job))
		return job
	}
	large := queued("large", running, 2)
	reaches(t, large, "it has its place", func(job *mlv1.TrainingJob) bool {
		return meta.IsStatusConditionTrue(job.Status.Conditions, reasons.ConditionAdmitted)
	})
	small := queued("small", "true", 1)

	paused := reaches(t, large, "it is evicted", func(job *mlv1.TrainingJob) bool {
		return job.Status.Admission != nil && job.Status.Admission.RetryTime != nil && job.Status.State == mlv1.StateSuspended
	})
	admitted := meta.FindStatusCondition(paused.Status.Conditions, reasons.ConditionAdmitted)
	assert.Equal(t, reasons.ResourceQuotaExceeded, admitted.Reason)
	assert.Contains(t, admitted.Message, "exceeded quota: one-pod")
	assert.Contains(t, admitted.Message, "is queued again at")
	completed := reaches(t, small, "it is Completed", inState(mlv1.StateCompleted))
	assert.Zero(t, completed.Status.RestartCount)
}
