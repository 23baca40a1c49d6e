package aijob

import (
	"testing"

	"k8s.io/client-go/transport"

	"github.com/stretchr/testify/require"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/budget"
)

func TestBudgetOfALife(t *testing.T) {
	c, traffic := newExclusiveCluster(t), &budget.Traffic{}
	c.wrap = []transport.WrapperFunc{traffic.Wrap}
	m := c.start(nil)

	// A first job opens all watches.
	c.live(m, "first")
	budget.Check(t, "aijob.watches", float64(traffic.Watches.Load()))

	requests, bytes := traffic.Requests.Load(), traffic.Bytes.Load()
	c.live(m, "second")
	budget.Check(t, "aijob.requests", float64(traffic.Requests.Load()-requests))
	budget.Check(t, "aijob.bytes", float64(traffic.Bytes.Load()-bytes))
}

// live runs a job to its end.
func (c *cluster) live(m *manager, name string) {
	c.t.Helper()
	run := job().Namespace(c.namespace).ToCreate()
	run.Name = name
	require.NoError(c.t, c.Create(c.t.Context(), run))
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	c.exit(name+"-0-0", 0, "")
	c.reachPhase(run, aiplatformv1alpha1.AIJobSucceeded, 0)
	c.quiet(m)
}
