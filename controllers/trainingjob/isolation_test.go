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
		framework mlv1.Framework
		isolation mlv1.Isolation
		all, want bool
	}{
		{"neither says so", "pytorch", "", false, false},
		{"the installation says so", "pytorch", "", true, true},
		{"the job says so", "pytorch", mlv1.IsolationJob, false, true},
		{"the job says no", "pytorch", mlv1.IsolationNone, true, false},
		{"Ray, whose ports run code", "ray", "", false, true},
		{"Ray, and the job says no", "ray", mlv1.IsolationNone, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
				s.Framework, s.Networking.Isolation = test.framework, test.isolation
			}).Obj()
			o := observed{job: job, settings: build.Settings{IsolateJobs: test.all}}
			all := o.wanted(false)
			policy := slices.IndexFunc(all, func(o client.Object) bool { return strings.HasPrefix(titleOf(o), "NetworkPolicy") })
			workers := slices.IndexFunc(all, func(o client.Object) bool { return strings.HasPrefix(titleOf(o), "Job") })
			assert.Equal(t, test.want, policy >= 0)
			assert.Less(t, policy, workers, "no pod runs before its policy")
		})
	}
}

// An upgrade to a version that isolates jobs leaves those alone that run: they are isolated from their next start on.
func TestWorkersThatRunAreNotIsolatedByADefault(t *testing.T) {
	isolating := build.Settings{IsolateJobs: true}
	for _, test := range []struct {
		name      string
		isolation mlv1.Isolation
		started   build.Settings
		want      bool
	}{
		{"started before", "", build.Settings{}, false},
		{"started isolated", "", isolating, true},
		{"the job asks for it", mlv1.IsolationJob, build.Settings{}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.Isolation = test.isolation }).Obj()
			o := observed{job: job, settings: isolating, workers: build.Workers(job, test.started, 0)}
			assert.Equal(t, test.want, slices.ContainsFunc(o.wanted(true), isPolicy))
			o.workers = nil
			assert.True(t, slices.ContainsFunc(o.wanted(true), isPolicy), "at the next start")
		})
	}
}

func isPolicy(object client.Object) bool {
	_, is := object.(*networkingv1.NetworkPolicy)
	return is
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
