//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// closePort drops what the pods of this node send to a port, without an answer, as network plugins do with what no NetworkPolicy allows.
func closePort(t *testing.T, port int32) (open func()) {
	t.Helper()
	if os.Getenv("E2E_KUBELET_DIR") == "" {
		t.Skip("the node must be on this machine; make e2e has one")
	}
	change := func(ctx context.Context, action string) {
		t.Helper()
		out, err := exec.CommandContext(ctx, "iptables", "-w", "5", action, "FORWARD", "-p", "tcp", "--dport", strconv.Itoa(int(port)), "-j", "DROP").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	change(t.Context(), "-I")
	open = sync.OnceFunc(func() { change(context.WithoutCancel(t.Context()), "-D") })
	t.Cleanup(open)
	return open
}

// Workers that cannot reach one another say so, and go on by themselves once they can.
func TestTheConditionNamesWorkersThatAreCutOff(t *testing.T) {
	t.Parallel()
	const port = 29777
	open := closePort(t, port)
	job := digits(namespace(t), "cut-off").obj()
	job.Spec.Hyperparameters.Epochs, job.Spec.Networking.Preflight, job.Spec.Networking.MasterPort = ptr.To[int32](1), ptr.To(true), port
	require.NoError(t, cluster.Create(t.Context(), job))

	networkReady := func(job *mlv1.TrainingJob, is metav1.ConditionStatus) *metav1.Condition {
		if found := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionNetworkReady); found != nil && found.Status == is {
			return found
		}
		return nil
	}
	waiting := reaches(t, job, "a pair is named", func(job *mlv1.TrainingJob) bool { return networkReady(job, metav1.ConditionFalse) != nil })
	assert.Equal(t, mlv1.StateInitializing, waiting.Status.State)
	assert.Equal(t, reasons.PeerUnreachable, waiting.Status.Reason)
	told := networkReady(waiting, metav1.ConditionFalse)
	assert.Equal(t, reasons.PeerUnreachable, told.Reason)
	assert.Regexp(t, `^worker \d \(pod cut-off-training-\d-\w+ on node [\w-]+\) does not reach worker \d \(pod .*29777.*NetworkPolicies`, told.Message)

	open()
	done := completes(t, job)
	assert.NotNil(t, networkReady(done, metav1.ConditionTrue))
	assert.Zero(t, done.Status.RestartCount, "the check waited")
}
