//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// pythonJob runs a program in the workers' image.
func pythonJob(t *testing.T, ns, name, program string) *builders.AIJobBuilder {
	t.Helper()
	return builders.AIJob(name).Namespace(ns).Request("cpu", "50m").Request("memory", "32Mi").
		Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
			s.Image, s.Command = workerImage(t), []string{"python3", "-c", program}
		})
}

// awaitAIJob waits until a job is in a phase.
func awaitAIJob(t *testing.T, job *aiplatformv1alpha1.AIJob, phase aiplatformv1alpha1.AIJobPhase) {
	t.Helper()
	eventually(t, fmt.Sprintf("AIJob %s is %s", job.Name, phase), func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return false, err
		}
		if job.Status.Phase != phase && job.Status.CompletionTime != nil {
			return false, fmt.Errorf("it is %s: %s: %s", job.Status.Phase, job.Status.Reason, job.Status.Message)
		}
		return job.Status.Phase == phase, nil
	})
}

// A job is run by a real kubelet, and what it reports stands in its status.
func TestAIJobRunsAndReports(t *testing.T) {
	t.Parallel()
	job := pythonJob(t, namespace(t), "answer", `
import json, os
config = json.loads(os.environ["CONFIG"])
json.dump({"answer": config["a"] * config["b"], "try": os.environ["ATTEMPT"]}, open("/dev/termination-log", "w"))
`).Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Config = &runtime.RawExtension{Raw: []byte(`{"a": 6, "b": 7}`)}
	}).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), job))
	assert.NotEmpty(t, job.Annotations[aiplatformv1alpha1.AnnotationUser], "the webhook notes whose job it is")
	awaitAIJob(t, job, aiplatformv1alpha1.AIJobSucceeded)
	assert.Equal(t, map[string]string{"answer": "42", "try": "0"}, job.Status.Outputs)
}

// A job that fails at first is tried again, by itself.
func TestAIJobIsRetried(t *testing.T) {
	t.Parallel()
	job := pythonJob(t, namespace(t), "second", `import os, sys; sys.exit("not yet" if os.environ["ATTEMPT"] == "0" else 0)`).
		Retries(1, time.Second).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), job))
	awaitAIJob(t, job, aiplatformv1alpha1.AIJobSucceeded)
	assert.Equal(t, int32(1), job.Status.RetryCount)
}

// awaitAIJobReason waits until a job says in a phase why it is no further.
func awaitAIJobReason(t *testing.T, job *aiplatformv1alpha1.AIJob, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("AIJob %s tells %s", job.Name, reason), func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.Reason == reason, err
	})
	assert.Equal(t, aiplatformv1alpha1.AIJobScheduled, job.Status.Phase)
}

// What keeps a pod from starting is reported while it can be fixed.
func TestAIJobThatLacksASecretStartsOnceItExists(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	job := pythonJob(t, ns, "secret", `import os, sys; sys.exit(os.environ["TOKEN"] != "t")`).Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "forgotten"}, Key: "token",
		}}}}
	}).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), job))
	awaitAIJobReason(t, job, reasons.ContainerConfigError)
	assert.Contains(t, job.Status.Message, `secret "forgotten" not found; it starts once that exists; the job fails if that is so at `)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forgotten"}, StringData: map[string]string{"token": "t"}}
	require.NoError(t, cluster.Create(t.Context(), secret))
	awaitAIJob(t, job, aiplatformv1alpha1.AIJobSucceeded)
	assert.Zero(t, job.Status.RetryCount)
}

func TestAIJobWhoseImageCannotBePulledSaysSo(t *testing.T) {
	t.Parallel()
	job := pythonJob(t, namespace(t), "image", "").Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.Image = "127.0.0.1:1/none:none" }).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), job))
	awaitAIJobReason(t, job, reasons.ImagePullFailed)
	assert.Contains(t, job.Status.Message, "cannot pull image 127.0.0.1:1/none:none: ")
}

// The members of a gang find one another by name.
func TestAIJobGangMeets(t *testing.T) {
	t.Parallel()
	job := pythonJob(t, namespace(t), "pair", `
import json, os, socket, time
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    server = socket.create_server(("", at[1]))
    peer, _ = server.accept()
    json.dump({"heard": peer.recv(100).decode()}, open("/dev/termination-log", "w"))
else:
    for _ in range(300):
        try:
            socket.create_connection(at).sendall(b"rank 1 of " + os.environ["WORLD_SIZE"].encode())
            break
        except OSError:
            time.sleep(0.2)
`).Gang(2).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), job))
	awaitAIJob(t, job, aiplatformv1alpha1.AIJobSucceeded)
	assert.Equal(t, "rank 1 of 2", job.Status.Outputs["heard"])
}

// gpuNode adds a simulated node with GPUs, which goes before the cluster notices that it has no kubelet.
func gpuNode(t *testing.T, ns string, gpus int64) {
	t.Helper()
	node := simulatedNode(t, ns)
	before := node.DeepCopy()
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		list["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	require.NoError(t, cluster.Status().Patch(t.Context(), node, client.MergeFrom(before)))
}

// gpuJob needs GPUs of the simulated node.
func gpuJob(ns, name string, gpus int64) *builders.AIJobBuilder {
	return builders.AIJob(name).Namespace(ns).GPUs(gpus).Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{simulatedOnly: aiplatformv1alpha1.LabelValue(ns)}
		s.Tolerations = []corev1.Toleration{{Key: simulatedOnly, Operator: corev1.TolerationOpEqual, Value: ns}}
	})
}

// playKubelet runs the pods that kube-scheduler binds to a simulated node, and ends those that are deleted, until the test ends.
func playKubelet(t *testing.T, ns string) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-done
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var pods corev1.PodList
			_ = cluster.List(ctx, &pods, client.InNamespace(ns))
			for i := range pods.Items {
				pod := &pods.Items[i]
				switch {
				case pod.DeletionTimestamp != nil:
					_ = cluster.Delete(ctx, pod, client.GracePeriodSeconds(0))
				case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending:
					before := pod.DeepCopy()
					pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, ptr.To(metav1.Now())
					_ = cluster.Status().Patch(ctx, pod, client.MergeFrom(before))
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(poll):
			}
		}
	}()
}

// succeeds ends a pod of a simulated node well.
func succeeds(t *testing.T, ns, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, pod))
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	require.NoError(t, cluster.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
}

// A gang that needs 4 GPUs while 2 are free waits, and says so; with 4 free all its pods are started at once.
func TestAIJobGangWaitsForAllItsGPUs(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	gpuNode(t, ns, 4)
	playKubelet(t, ns)
	first := gpuJob(ns, "first", 2).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), first))
	awaitAIJob(t, first, aiplatformv1alpha1.AIJobRunning)

	gang := gpuJob(ns, "four", 1).Gang(4).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), gang))
	eventually(t, "the gang waits for GPUs", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(gang), gang)
		return gang.Status.Reason == reasons.InsufficientCapacity, err
	})
	assert.Equal(t, aiplatformv1alpha1.AIJobQueued, gang.Status.Phase)
	assert.Regexp(t, `requested 4, available 2`, gang.Status.Message)
	members := client.MatchingLabels{aiplatformv1alpha1.LabelAIJob: "four"}
	var pods corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &pods, client.InNamespace(ns), members))
	assert.Empty(t, pods.Items, "not one of them is made before all can be")

	succeeds(t, ns, "first-0-0")
	awaitAIJob(t, gang, aiplatformv1alpha1.AIJobRunning)
	require.NoError(t, cluster.List(t.Context(), &pods, client.InNamespace(ns), members))
	require.Len(t, pods.Items, 4)
	for _, pod := range pods.Items {
		assert.Equal(t, "simulated-"+ns, pod.Spec.NodeName)
		assert.LessOrEqual(t, pod.CreationTimestamp.Sub(pods.Items[0].CreationTimestamp.Time).Abs(), 5*time.Second, "all at once")
	}
}

// A job of higher priority takes the place of one of lower priority, which runs again afterwards.
func TestAIJobOfHigherPriorityTakesThePlace(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	gpuNode(t, ns, 4)
	playKubelet(t, ns)
	queue := &aiplatformv1alpha1.AIJobQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + rand.String(8)},
		Spec:       aiplatformv1alpha1.AIJobQueueSpec{PreemptionPolicy: aiplatformv1alpha1.PreemptLowerPriority},
	}
	require.NoError(t, cluster.Create(t.Context(), queue))
	t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), queue) })
	low := gpuJob(ns, "low", 4).Priority(10).Queue(queue.Name).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), low))
	awaitAIJob(t, low, aiplatformv1alpha1.AIJobRunning)

	urgent := gpuJob(ns, "urgent", 4).Priority(90).Queue(queue.Name).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), urgent))
	awaitAIJob(t, urgent, aiplatformv1alpha1.AIJobRunning)
	awaitAIJob(t, low, aiplatformv1alpha1.AIJobQueued)
	assert.Equal(t, int32(1), low.Status.PreemptionCount)
	assert.Zero(t, low.Status.RetryCount)

	succeeds(t, ns, "urgent-0-0")
	awaitAIJob(t, low, aiplatformv1alpha1.AIJobRunning)
}
