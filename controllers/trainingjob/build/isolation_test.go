package build

import (
	"testing"

	"github.com/stretchr/testify/assert"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/networkpolicy"
)

// No network plugin that enforces policies runs on the cluster of the tests: this says what the object means, with the
// labels that the pods of jobs have.
func TestWhoMayReachTheWorkersOfAnIsolatedJob(t *testing.T) {
	settings := Settings{WorkerImage: "worker:1", Namespace: "operators"}
	workerOf := func(name, namespace string) networkpolicy.End {
		job := builders.TrainingJob(name).Namespace(namespace).Obj()
		return networkpolicy.End{Namespace: namespace, Labels: Workers(job, settings, 0).Spec.Template.Labels}
	}
	in := func(namespace string, labels map[string]string) networkpolicy.End {
		return networkpolicy.End{Namespace: namespace, NamespaceLabels: labels, Labels: map[string]string{"app": "any"}}
	}
	lets := func(policy *networkingv1.NetworkPolicy, from, to networkpolicy.End, port int32) bool {
		return networkpolicy.Policies{policy}.MayAllow(t, networkpolicy.Connection{From: from, To: to, Port: port})
	}
	bert := workerOf("bert", "team-a")
	scrapers := map[string]string{"metrics": "enabled"}
	policy := NetworkPolicy(builders.TrainingJob("bert").Namespace("team-a").Obj(), settings)
	for _, test := range []struct {
		name     string
		from, to networkpolicy.End
		port     int32
		want     bool
	}{
		{"another worker at the master port", bert, bert, 29500, true},
		{"another worker at a port that gloo chose", bert, bert, 43210, true},
		{"another worker at Ray's dashboard", bert, bert, 8265, true},
		{"a pod of another namespace at Ray's dashboard", in("team-b", nil), bert, 8265, false},
		{"a pod of another namespace at Ray's client port", in("team-b", nil), bert, 10001, false},
		{"a pod of another namespace at Ray's GCS", in("team-b", nil), bert, 6379, false},
		{"the manager at Ray's dashboard", in("operators", nil), bert, 8265, false},
		{"a worker of another job in the namespace", workerOf("gpt", "team-a"), bert, 29500, false},
		{"a worker of a job of the same name in another namespace", workerOf("bert", "team-b"), bert, 29500, false},
		{"another job's worker at the metrics port", workerOf("gpt", "team-a"), bert, 8080, false},
		{"any pod of the namespace", in("team-a", nil), bert, 8080, false},
		{"the manager at the metrics port", in("operators", nil), bert, 8080, true},
		{"the manager at the agent's port", in("operators", nil), bert, 9464, true},
		{"the manager at TensorBoard", in("operators", nil), bert, 6006, true},
		{"the manager at the master port", in("operators", nil), bert, 29500, false},
		{"Prometheus in a namespace that may read metrics", in("monitoring", scrapers), bert, 8080, true},
		{"Prometheus at the agent's port", in("monitoring", scrapers), bert, 9464, false},
		{"Prometheus in another namespace", in("monitoring", nil), bert, 8080, false},
		{"any pod to a job that the policy is not of", in("elsewhere", nil), workerOf("gpt", "team-a"), 29500, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, lets(policy, test.from, test.to, test.port))
		})
	}
	t.Run("any client at the metrics port, when the manager is not in the cluster", func(t *testing.T) {
		outside := NetworkPolicy(builders.TrainingJob("bert").Namespace("team-a").Obj(), Settings{})
		assert.True(t, lets(outside, in("elsewhere", nil), bert, 8080))
		assert.False(t, lets(outside, in("elsewhere", nil), bert, 29500))
	})
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes, "DNS and storage stay reachable")
}
