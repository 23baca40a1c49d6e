//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

const joinZone = "us-central1-a"

// machineTaint keeps pods of other tests off the machines, which do not have their images.
var machineTaint = corev1.Taint{Key: "e2e.example.com/machine", Value: "yes", Effect: corev1.TaintEffectNoSchedule}

// joining is what the operator does for an instance named name, up to its creation.
type joining struct {
	cloud    *machines
	join     nodejoin.Join
	spec     spotv1alpha1.SpotInstanceVMSpec
	key      *nodejoin.KeyPair
	tokens   nodejoin.Tokens
	instance cloud.InstanceSpec
}

func newJoining(t *testing.T, name string, method spotv1alpha1.JoinMethod, startupScript string) *joining {
	t.Helper()
	ctx := t.Context()
	j := &joining{tokens: nodejoin.Tokens{Client: cluster.Client, Reader: cluster.Client}}
	j.cloud = startCloud(t, fakegce.Options{Latency: fakegce.Latency{Provision: 200 * time.Millisecond, Notice: 2 * time.Second}}, managerImage(t))
	j.spec.StartupScript = startupScript
	j.spec.JoinTimeout.Duration = patience
	j.spec.KubeadmJoinConfig.Method = method
	j.join.Instance = nodejoin.Instance{
		Name: name, VM: types.NamespacedName{Namespace: "e2e", Name: "machines"},
		Labels: map[string]string{"e2e.example.com/zone": joinZone}, Taints: []corev1.Taint{machineTaint},
	}
	var err error
	j.join.Cluster, err = nodejoin.Discover(ctx, cluster.Client, "e2e", j.spec.KubeadmJoinConfig)
	require.NoError(t, err)
	j.join.Token, err = j.tokens.Make(ctx, j.join.Instance, patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.tokens.Revoke(context.WithoutCancel(ctx), j.join.Instance) })
	if method == spotv1alpha1.JoinBySSH {
		keys := nodejoin.Keys{Client: cluster.Client, Reader: cluster.Client, Namespace: operatorNamespace}
		j.key, err = keys.Make(ctx, j.join.Instance)
		require.NoError(t, err)
		t.Cleanup(func() { _ = keys.Remove(context.WithoutCancel(ctx), j.join.Instance) })
	}
	metadata, err := nodejoin.Metadata(j.join, &j.spec, j.key)
	require.NoError(t, err)
	j.instance = cloud.InstanceSpec{
		Name: name, Zone: joinZone, RequestID: string(uuid.NewUUID()), MachineType: "n1-standard-2", Spot: true,
		Image: "projects/test-project/global/images/node", DiskGB: 20, DiskType: "pd-standard", Metadata: metadata,
	}
	return j
}

// managerImage is the image that the deployed operator runs.
func managerImage(t *testing.T) string {
	t.Helper()
	pods := managerPods(t)
	require.NotEmpty(t, pods)
	return pods[0].Spec.Containers[0].Image
}

// revoke ends the token, after which it opens no door.
func (j *joining) revoke(t *testing.T) {
	t.Helper()
	require.NoError(t, j.tokens.Revoke(t.Context(), j.join.Instance))
	var secrets corev1.SecretList
	require.NoError(t, cluster.List(t.Context(), &secrets, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{"training.dcnlab.com/instance": j.instance.Name}))
	assert.Empty(t, secrets.Items, "the token is revoked")
}

// runsPods runs a pod of the manager's image on a machine, and reads its log.
func runsPods(t *testing.T, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "on-machine"},
		Spec: corev1.PodSpec{
			NodeSelector:    map[string]string{corev1.LabelHostname: node},
			Tolerations:     []corev1.Toleration{{Key: machineTaint.Key, Operator: corev1.TolerationOpExists}},
			RestartPolicy:   corev1.RestartPolicyNever,
			SecurityContext: restrictedPod(),
			Containers: []corev1.Container{{
				Name: "main", Image: managerImage(t), Args: []string{"--help"}, SecurityContext: restrictedContainer(),
			}},
		},
	}
	require.NoError(t, cluster.Create(t.Context(), pod))
	eventually(t, "a pod has run on the machine", func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		if pod.Status.Phase == corev1.PodFailed {
			return false, errors.New("the pod failed")
		}
		return pod.Status.Phase == corev1.PodSucceeded, nil
	})
	assert.Equal(t, node, pod.Spec.NodeName)
	// The API server asks the machine's own kubelet for it, and checks who that is.
	assert.Contains(t, log(t.Context(), pod), "Usage:")
}

// An instance boots with the operator's startup script, joins by itself and is a node on which pods run; its token is
// good for nothing afterwards. When its provider takes it back the machine is off.
func TestInstanceJoinsByStartupScript(t *testing.T) {
	const name = "by-script-a1b2c"
	j := newJoining(t, name, spotv1alpha1.JoinByStartupScript, "echo prepared by the user >/var/lib/prepared")
	provider := j.cloud.provider()
	_, err := provider.Create(t.Context(), j.instance)
	require.NoError(t, err)

	began := time.Now()
	node := nodeBecomesReady(t, name)
	t.Logf("ready %s after the request for the instance", time.Since(began).Round(100*time.Millisecond))
	assert.Equal(t, "machines", node.Labels[spotv1alpha1.LabelSpotInstanceVM])
	assert.Equal(t, "e2e", node.Labels[spotv1alpha1.LabelSpotInstanceVMNamespace])
	assert.Equal(t, joinZone, node.Labels["e2e.example.com/zone"])
	assert.Contains(t, node.Spec.Taints, machineTaint)
	runsPods(t, name)

	console := j.cloud.console(name)
	assert.Contains(t, console, "spot-training-operator: the startup script is done")
	assert.Contains(t, console, "spot-training-operator: joined")
	assert.NotContains(t, console, j.join.Token[7:], "the token is on the console")
	j.revoke(t)

	require.NoError(t, j.cloud.Preempt(name))
	eventually(t, "the instance is off", func(ctx context.Context) (bool, error) {
		instance, err := provider.Get(ctx, joinZone, name)
		return err == nil && instance.State == "TERMINATED" || cloud.ClassOf(err) == cloud.NotFound, nil
	})
}

// The operator logs in to an instance that it knows by the host keys which the instance has published, and joins it.
// Nothing is sent to one with other keys.
func TestInstanceJoinsBySSH(t *testing.T) {
	const name = "by-ssh-a1b2c"
	ctx := t.Context()
	j := newJoining(t, name, spotv1alpha1.JoinBySSH, "sleep 1; echo prepared by the user >/var/lib/prepared")
	provider := j.cloud.provider()
	_, err := provider.Create(ctx, j.instance)
	require.NoError(t, err)
	target := nodejoin.SSH{Address: j.cloud.address(name) + ":22", User: nodejoin.User(&j.spec), Key: j.key}
	eventually(t, "the instance has published its host keys", func(ctx context.Context) (bool, error) {
		target.HostKeys, err = provider.HostKeys(ctx, joinZone, name)
		return len(target.HostKeys) > 0, err
	})

	stranger := target
	stranger.HostKeys = []string{j.key.AuthorizedKey()}
	failure := (*nodejoin.SSHError)(nil)
	require.ErrorAs(t, nodejoin.OverSSH(ctx, stranger, j.join, &j.spec), &failure)
	assert.Equal(t, nodejoin.StageHostKey, failure.Stage)
	err = cluster.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
	require.True(t, apierrors.IsNotFound(err), "there is a node although nothing was sent: %v", err)

	require.NoError(t, nodejoin.OverSSH(ctx, target, j.join, &j.spec))
	node := nodeBecomesReady(t, name)
	assert.Equal(t, "machines", node.Labels[spotv1alpha1.LabelSpotInstanceVM])
	runsPods(t, name)
	assert.NotContains(t, j.cloud.console(name), j.join.Token[7:], "the token is on the console")
	j.revoke(t)
	// Once more is harmless: a manager that crashed does not know that it is done.
	require.NoError(t, nodejoin.OverSSH(ctx, target, j.join, &j.spec))
}
