//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// follower keeps what a container says from now on, each line with the time at which the kubelet took it.
type follower struct {
	mu    sync.Mutex
	lines []string
}

func follow(t *testing.T, pod *corev1.Pod, container string) *follower {
	t.Helper()
	stream, err := cluster.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Follow: true, Timestamps: true,
	}).Stream(t.Context())
	require.NoError(t, err)
	f := &follower{}
	t.Cleanup(func() { _ = stream.Close() })
	go func() {
		for lines := bufio.NewScanner(stream); lines.Scan(); {
			f.mu.Lock()
			f.lines = append(f.lines, lines.Text())
			f.mu.Unlock()
		}
	}()
	return f
}

// said waits for a line that matches, and returns its groups and its time.
func (f *follower) said(t *testing.T, pattern string) (groups []string, at time.Time) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	eventually(t, "a container says "+pattern, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, line := range f.lines {
			stamp, text, _ := strings.Cut(line, " ")
			if groups = expression.FindStringSubmatch(text); groups != nil {
				var err error
				at, err = time.Parse(time.RFC3339Nano, stamp)
				return true, err
			}
		}
		return false, nil
	})
	return groups, at
}

// The notice keeps new pods off its node, on a cluster of one node all pods. So this test runs alone, and takes the notice
// back when the workers have left.
func TestATrainingLeavesANodeThatGoesAndLosesNoStep(t *testing.T) {
	job := digits(namespace(t), "leaves").pace(150e6).obj()
	job.Spec.Scheduling = &mlv1.Scheduling{Spot: &mlv1.SpotReference{Name: "gpus"}}
	job.Spec.Checkpoint.Frequency = 100 // only the notice has one taken
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 2
	})
	first := workers(t, job)["0"]
	assert.Equal(t, "gpus", first.Labels[spotv1alpha1.LabelSpotInstanceVM], "instances may be created for it")
	trainer, agent := follow(t, &first, first.Spec.Containers[0].Name), follow(t, &first, report.AgentContainer)

	node := first.Spec.NodeName
	withdraw := func(ctx context.Context) error {
		return nodenotice.Clear(ctx, cluster.Client, node, nodenotice.MetadataServer)
	}
	t.Cleanup(func() { _ = withdraw(context.WithoutCancel(t.Context())) })
	noticed := time.Now()
	require.NoError(t, nodenotice.Mark(t.Context(), cluster.Client, node, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: noticed}))

	_, asked := agent.said(t, "a checkpoint was asked for")
	assert.Less(t, asked.Sub(noticed), 5*time.Second, "at once, not in a next round")
	leaving := reaches(t, job, "it restarts", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	assert.Less(t, time.Since(noticed), nodenotice.Grace, "before the node is gone")
	assert.Equal(t, reasons.NodePreempted, leaving.Status.LastFailure.Reason)
	assert.NotEmpty(t, leaving.Status.Preemption.CheckpointPath)
	groups, stopped := trainer.said(t, `stopping after step (\d+)`)
	last, err := strconv.ParseInt(groups[1], 10, 64)
	require.NoError(t, err)
	assert.Less(t, stopped.Sub(noticed), nodenotice.Grace)
	t.Logf("the agent was asked after %s, the workers stopped after %s", asked.Sub(noticed), stopped.Sub(noticed))

	reaches(t, job, "it waits for another node", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.SpotInstanceVMNotFound })
	require.NoError(t, withdraw(t.Context()))
	done := completes(t, job)

	assert.Equal(t, last, restoredStep(t, job), "it goes on after the step at which it stopped")
	assert.Equal(t, int32(1), done.Status.RestartCount)
	assert.Equal(t, int32(1), done.Status.DisruptionCount)
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
	happened(t, job, "PreemptionNotice", node)
	happened(t, job, "PreemptionCheckpoint", "goes on from the checkpoint")
}
