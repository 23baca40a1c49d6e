//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// counting keeps a number and a name that cannot be guessed, in memory only, and says both all the time.
const counting = `
import itertools, os, time
name = os.urandom(8).hex()
for n in itertools.count(1):
    print(name, n, flush=True)
    time.sleep(0.1)
`

// rootNamespace is a namespace whose pods may run as root.
func rootNamespace(t *testing.T) string {
	t.Helper()
	name := namespace(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`))
	require.NoError(t, cluster.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch))
	return name
}

// asRoot is for machines that themselves lack CAP_SYS_RESOURCE: there CRIU cannot read the limits of another user's
// processes.
func asRoot() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsUser: ptr.To[int64](0), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// countingPod runs it, or what it has become in a checkpoint.
func countingPod(t *testing.T, ns, name, image string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, SecurityContext: asRoot(),
			Containers: []corev1.Container{{Name: "count", Image: image, Command: []string{"/usr/bin/python3", "-c", counting}}},
		},
	}
	require.NoError(t, cluster.Create(t.Context(), pod))
	t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), pod) })
	return pod
}

// counts waits until a pod has said a number of at least so much since it was started, and returns who it says it is, with the first and the
// last number.
func counts(t *testing.T, pod *corev1.Pod, least int) (name string, first, last int) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s counts to %d", pod.Name, least), func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
			if pod.Status.Phase == corev1.PodFailed {
				return false, fmt.Errorf("pod %s failed: %+v", pod.Name, pod.Status.ContainerStatuses)
			}
			return false, nil
		}
		// A restored container's log begins with that of the first.
		since := pod.Status.ContainerStatuses[0].State.Running.StartedAt
		text, err := cluster.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{SinceTime: &since}).DoRaw(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // there is no log yet
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		name, first = said(lines[0])
		_, last = said(lines[len(lines)-1])
		return last >= least, nil
	})
	return name, first, last
}

func said(line string) (string, int) {
	name, number, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(strings.TrimSpace(number))
	return name, n
}

func askForCheckpoint(t *testing.T, version string, backup checkpointbackup.Backup) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), checkpointbackup.Encode(backup, version)))
}

// backupEnds waits for the end of a CheckpointBackup, and returns it with the phases that were seen.
func backupEnds(t *testing.T, version string, key types.NamespacedName) (checkpointbackup.Backup, []checkpointbackup.Phase) {
	t.Helper()
	var backup checkpointbackup.Backup
	var phases []checkpointbackup.Phase
	eventually(t, "CheckpointBackup "+key.Name+" has ended", func(ctx context.Context) (bool, error) {
		object := checkpointbackup.Object(version)
		if err := cluster.Get(ctx, key, object); err != nil {
			return false, err
		}
		backup = checkpointbackup.Decode(object)
		if len(phases) == 0 || phases[len(phases)-1] != backup.Status.Phase {
			phases = append(phases, backup.Status.Phase)
		}
		return backup.Status.Phase.Ended(), nil
	})
	return backup, phases
}

func countingBackup(ns, name, registry string, pod *corev1.Pod) checkpointbackup.Backup {
	return checkpointbackup.Backup{
		Key: types.NamespacedName{Namespace: ns, Name: name},
		Spec: checkpointbackup.Spec{
			Schedule: checkpointbackup.Immediately,
			Pod:      client.ObjectKeyFromObject(pod),
			Resource: checkpointbackup.Resource{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: pod.Name},
			Registry: checkpointbackup.Registry{URL: registry, Repository: "e2e/" + ns},
			Containers: []checkpointbackup.Container{
				{Name: "count", Image: fmt.Sprintf("%s/e2e/%s:%s", registry, ns, name)},
			},
		},
	}
}

// A process goes on in another pod where it was, with what it had in memory only.
func TestACheckpointedContainerGoesOnInANewPod(t *testing.T) {
	t.Parallel()
	registry, ns := checkpointAgent(t), rootNamespace(t)
	first := countingPod(t, ns, "first", workerImage(t))
	name, _, before := counts(t, first, 30)

	began := time.Now()
	askForCheckpoint(t, "v1", countingBackup(ns, "one", registry, first))
	done, phases := backupEnds(t, "v1", types.NamespacedName{Namespace: ns, Name: "one"})
	t.Logf("the checkpoint took %s, through %v", time.Since(began).Round(time.Millisecond), phases)
	require.Equal(t, checkpointbackup.Completed, done.Status.Phase, done.Status.Message)
	image := registry + "/e2e/" + ns + ":one"
	assert.Equal(t, []checkpointbackup.Container{{Name: "count", Image: image}}, done.Status.Images)
	assert.False(t, done.Status.Completed.IsZero())
	_, _, alive := counts(t, first, before+10)
	require.NoError(t, cluster.Delete(t.Context(), first, client.GracePeriodSeconds(0)))

	second := countingPod(t, ns, "second", image)
	again, start, _ := counts(t, second, before+20)
	assert.Equal(t, name, again, "it is the same process")
	assert.Greater(t, start, before, "it did not begin at 0")
	assert.LessOrEqual(t, start, alive+20, "it goes on from the checkpoint")
	t.Logf("it had counted to %d before the checkpoint, and goes on from %d", before, start)

	left, err := filepath.Glob(filepath.Join(os.Getenv("E2E_KUBELET_DIR"), "checkpoints", "*first*"))
	require.NoError(t, err)
	assert.Empty(t, left, "no memory is left on the node")
}

// The older version is served as well, and the pod is deleted when that is asked for.
func TestACheckpointMayStopThePod(t *testing.T) {
	t.Parallel()
	registry, ns := checkpointAgent(t), rootNamespace(t)
	pod := countingPod(t, ns, "stopped", workerImage(t))
	counts(t, pod, 5)
	backup := countingBackup(ns, "stop", registry, pod)
	backup.Spec.StopPod = true

	askForCheckpoint(t, "v1alpha1", backup)
	done, _ := backupEnds(t, "v1alpha1", backup.Key)

	require.Equal(t, checkpointbackup.CompletedPodDeleted, done.Status.Phase, done.Status.Message)
	eventually(t, "the pod is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return client.IgnoreNotFound(err) == nil && err != nil, client.IgnoreNotFound(err)
	})
}

// Whatever is in the way is said where it was asked for.
func TestACheckpointThatCannotBeTakenSaysWhy(t *testing.T) {
	t.Parallel()
	registry, ns := checkpointAgent(t), rootNamespace(t)
	pod := countingPod(t, ns, "unlucky", workerImage(t))
	counts(t, pod, 3)
	for name, test := range map[string]struct {
		change func(*checkpointbackup.Spec)
		says   string
	}{
		"closed-registry": {func(s *checkpointbackup.Spec) {
			s.Registry.URL = "127.0.0.1:1"
			s.Containers[0].Image = "127.0.0.1:1/e2e/closed:one"
		}, "127.0.0.1 is an address of the node itself"},
		"no-secret":    {func(s *checkpointbackup.Spec) { s.Registry.Secret.Name = "missing" }, "--clusterrole=spot-checkpoint-agent-registry"},
		"no-container": {func(s *checkpointbackup.Spec) { s.Containers[0].Name = "other" }, "spec.containers[0].name: pod unlucky has no container other: name one of count"},
	} {
		backup := countingBackup(ns, name, registry, pod)
		test.change(&backup.Spec)
		askForCheckpoint(t, "v1", backup)
		done, _ := backupEnds(t, "v1", backup.Key)
		assert.Equal(t, checkpointbackup.Failed, done.Status.Phase, name)
		assert.Contains(t, done.Status.Message, test.says)
	}
}
