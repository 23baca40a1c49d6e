package build

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	labelselector "k8s.io/apimachinery/pkg/labels"

	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// place is where a pod is, and its labels.
type place struct {
	namespace       string
	namespaceLabels map[string]string
	labels          map[string]string
}

// lets says whether a policy lets a connection into a pod that it may apply to, as the API's documentation defines it:
// a pod that the policy selects takes what one of its rules allows, any other pod takes everything.
func lets(t *testing.T, policy *networkingv1.NetworkPolicy, from, to place, port int32) bool {
	t.Helper()
	if policy.Namespace != to.namespace || !selects(t, &policy.Spec.PodSelector, to.labels) ||
		!slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		return true
	}
	for _, rule := range policy.Spec.Ingress {
		ports := len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
			return *p.Protocol == corev1.ProtocolTCP && p.Port.IntVal == port
		})
		peers := len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
			if peer.NamespaceSelector == nil {
				return from.namespace == policy.Namespace && selects(t, peer.PodSelector, from.labels)
			}
			return selects(t, peer.NamespaceSelector, from.namespaceLabels) &&
				(peer.PodSelector == nil || selects(t, peer.PodSelector, from.labels))
		})
		if ports && peers {
			return true
		}
	}
	return false
}

func selects(t *testing.T, selector *metav1.LabelSelector, labels map[string]string) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return parsed.Matches(labelselector.Set(labels))
}

// No network plugin that enforces policies runs on the cluster of the tests: this says what the object means, with the
// labels that the pods of jobs have.
func TestWhoMayReachTheWorkersOfAnIsolatedJob(t *testing.T) {
	settings := Settings{WorkerImage: "worker:1", Namespace: "operators"}
	workerOf := func(name, namespace string) place {
		job := builders.TrainingJob(name).Namespace(namespace).Obj()
		return place{
			namespace: namespace, namespaceLabels: map[string]string{corev1.LabelMetadataName: namespace},
			labels: Workers(job, settings, 0).Spec.Template.Labels,
		}
	}
	in := func(namespace string, more map[string]string) place {
		labels := map[string]string{corev1.LabelMetadataName: namespace}
		for name, value := range more {
			labels[name] = value
		}
		return place{namespace: namespace, namespaceLabels: labels, labels: map[string]string{"app": "any"}}
	}
	bert := workerOf("bert", "team-a")
	scrapers := map[string]string{"metrics": "enabled"}
	policy := NetworkPolicy(builders.TrainingJob("bert").Namespace("team-a").Obj(), settings)
	for _, test := range []struct {
		name     string
		from, to place
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
			assert.Equal(t, test.want, lets(t, policy, test.from, test.to, test.port))
		})
	}
	t.Run("any client at the metrics port, when the manager is not in the cluster", func(t *testing.T) {
		outside := NetworkPolicy(builders.TrainingJob("bert").Namespace("team-a").Obj(), Settings{})
		assert.True(t, lets(t, outside, in("elsewhere", nil), bert, 8080))
		assert.False(t, lets(t, outside, in("elsewhere", nil), bert, 29500))
	})
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes, "DNS and storage stay reachable")
}
