package trainingjob

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestIsolation(t *testing.T) {
	for _, test := range []struct {
		name      string
		isolation mlv1.Isolation
		all, want bool
	}{
		{"neither says so", "", false, false},
		{"the installation says so", "", true, true},
		{"the job says so", mlv1.IsolationJob, false, true},
		{"the job says no", mlv1.IsolationNone, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.Isolation = test.isolation }).Obj()
			o := observed{job: job, settings: build.Settings{IsolateJobs: test.all}}
			all := o.wanted(false)
			policy := slices.IndexFunc(all, func(o client.Object) bool { return strings.HasPrefix(titleOf(o), "NetworkPolicy") })
			workers := slices.IndexFunc(all, func(o client.Object) bool { return strings.HasPrefix(titleOf(o), "Job") })
			assert.Equal(t, test.want, policy >= 0)
			assert.Less(t, policy, workers, "no pod runs before its policy")
		})
	}
}

func TestAPIAnIsolatedJobKeepsItsPolicy(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Cleanup(mlv1.CleanupAll).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Networking.Isolation = mlv1.IsolationJob
	}))
	pods := c.startPods(c.workers(job, 0))
	var policy networkingv1.NetworkPolicy
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "bert-training"}, &policy))
	want := policy.Spec.DeepCopy()
	require.Len(t, want.Ingress, 3)

	c.change(&policy, "bert-training", func() {
		policy.Spec.Ingress = append(policy.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
	})
	eventually(t, "the policy being put back", func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(&policy), &policy))
		return len(policy.Spec.Ingress) == 3
	})
	assert.Equal(t, *want, policy.Spec)

	c.run(pods...)
	c.end(0, "", pods...)
	c.await(job, "Completed", state(mlv1.StateCompleted))
	c.gone(&policy)
}
