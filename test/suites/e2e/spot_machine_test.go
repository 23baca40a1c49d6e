//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

// spotMachine is a second computer that has joined the local cluster, as an instance of a SpotInstanceVM does.
type spotMachine struct {
	program, name string
}

// newSpotMachine switches a machine on and has it join. The SpotInstanceVM is that of its labels; it need not exist.
func newSpotMachine(t *testing.T, name string, vm types.NamespacedName) spotMachine {
	t.Helper()
	program := os.Getenv("LOCALCLUSTER")
	if program == "" {
		t.Skip("LOCALCLUSTER names no program that can add a machine to the cluster: make e2e sets it on the local cluster")
	}
	instance := nodejoin.Instance{Name: name, VM: vm}
	tokens := nodejoin.Tokens{Client: cluster.Client, Reader: cluster.Client}
	token, err := tokens.Make(t.Context(), instance, 10*time.Minute)
	require.NoError(t, err)
	found, err := nodejoin.Discover(t.Context(), cluster.Client, vm.Namespace, spotv1alpha1.KubeadmJoinConfig{})
	require.NoError(t, err)
	metadata, err := nodejoin.Metadata(nodejoin.Join{Instance: instance, Cluster: found, Token: token}, &spotv1alpha1.SpotInstanceVMSpec{}, nil)
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "startup-script")
	require.NoError(t, os.WriteFile(script, []byte(metadata["startup-script"]), 0o700))
	m := spotMachine{program: program, name: name}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = m.command(ctx, "down", name)
		_ = tokens.Revoke(ctx, instance)
		_ = cluster.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
	require.NoError(t, m.command(t.Context(), "up", name, "--startup-script", script, "--image", os.Getenv("IMG"), "--image", os.Getenv("WORKER_IMG")))
	nodeBecomesReady(t, name)
	return m
}

func (m spotMachine) command(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, m.program, append([]string{"machine"}, arguments...)...)
	command.Dir = filepath.Join("..", "..", "..")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

// The machine is really gone after its notice, and the training really goes on on another one.
func TestATrainingMovesToAnotherMachineBeforeItsOwnIsGone(t *testing.T) {
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	vm := types.NamespacedName{Namespace: ns, Name: "gpus"}
	old := newSpotMachine(t, "spot-a", vm)
	job := digits(ns, "moves").pace(150e6).in(server).obj()
	job.Spec.Scheduling = &mlv1.Scheduling{
		Spot:         &mlv1.SpotReference{Name: vm.Name},
		NodeSelector: map[string]string{spotv1alpha1.LabelSpotInstanceVM: vm.Name},
	}
	job.Spec.Checkpoint.Frequency = 100 // only the notice has one taken
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 2
	})
	first := workers(t, job)["0"]
	require.Equal(t, old.name, first.Spec.NodeName)
	trainer := follow(t, &first, first.Spec.Containers[0].Name)

	noticed := time.Now()
	require.NoError(t, nodenotice.Mark(t.Context(), cluster.Client, old.name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: noticed}))
	power := time.AfterFunc(time.Until(noticed.Add(nodenotice.Grace)), func() { _ = old.command(context.WithoutCancel(t.Context()), "preempt", old.name) })
	t.Cleanup(func() { power.Stop() })
	fresh := newSpotMachine(t, "spot-b", vm)
	leaving := reaches(t, job, "it restarts", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	assert.NotEmpty(t, leaving.Status.Preemption.CheckpointPath)
	groups, stopped := trainer.said(t, `stopping after step (\d+)`)
	reaches(t, job, "it trains again", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.RestartCount == 1
	})
	t.Logf("the workers stopped %s after the notice, and trained again on another machine after %s", stopped.Sub(noticed), time.Since(noticed))
	done := completes(t, job)

	second := workers(t, job)["0"]
	assert.Equal(t, fresh.name, second.Spec.NodeName)
	assert.Equal(t, groups[1], strconv.FormatInt(restoredStep(t, job), 10), "it goes on after the step at which it stopped")
	assert.Equal(t, int32(1), done.Status.RestartCount, "the end of the machine is no second loss")
	assert.Equal(t, int32(1), done.Status.DisruptionCount)
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
}

// The kubelet of a machine without power confirms the end of no pod. The pod of the next attempt has the same host name, which must not
// lead to both.
func TestAPodOnADeadMachineIsGoneBeforeTheNextAttempt(t *testing.T) {
	ns := namespace(t)
	vm := types.NamespacedName{Namespace: ns, Name: "gpus"}
	old := newSpotMachine(t, "dead-a", vm)
	job := program(ns, "survives", "exec tail -f /dev/null")
	job.Spec.Scheduling = &mlv1.Scheduling{NodeSelector: map[string]string{corev1.LabelHostname: old.name}}
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it runs", inState(mlv1.StateRunning))
	first := workers(t, job)["0"]
	require.Equal(t, old.name, first.Spec.NodeName)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	pods, err := cluster.typed.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{LabelSelector: mlv1.LabelTrainingJob + "=" + job.Name})
	require.NoError(t, err)
	defer pods.Stop()

	require.NoError(t, old.command(t.Context(), "preempt", old.name))
	at := time.Now()

	gone := false
	for event := range pods.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		require.True(t, ok, "%v", event.Object)
		switch {
		case pod.UID == first.UID && event.Type == watch.Deleted:
			gone = true
			t.Logf("the pod on the dead machine is gone %s after it lost its power", time.Since(at).Round(time.Second))
		case pod.UID != first.UID && pod.DeletionTimestamp == nil && pod.Labels[mlv1.LabelReplicaID] == first.Labels[mlv1.LabelReplicaID]:
			require.True(t, gone, "pod %s is there beside that on the dead machine", pod.Name)
			restarted := reaches(t, job, "it is started again", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
			assert.Equal(t, int32(1), restarted.Status.DisruptionCount, "the loss of a machine is no failure of the program")
			return
		}
	}
	t.Fatal("no pod of another attempt came")
}
