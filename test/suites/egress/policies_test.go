// Package egress_test holds the egress policies of each way to install the operator against the connections that its programs open: what
// the code opens is allowed, and nothing else. No network plugin that enforces policies runs on the clusters of the tests, so it goes by what
// the API defines (test/harness/networkpolicy).
//
// KUBEBUILDER_ASSETS is the folder of etcd, kube-apiserver and kubectl; without it that of the local cluster is used. HELM is the helm
// command; without it .bin/helm, which make builds.
package egress_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/networkpolicy"
)

// pods are the labels of an installation's pods.
type pods struct {
	namespace           string
	manager, jobService map[string]string
}

func podsOf(i *installations.Installation) pods {
	return pods{i.Namespace, i.Manager.Template.Labels, i.JobService.Template.Labels}
}

// form is a way to install the operator with egress policies.
type form struct {
	install func(t *testing.T, options []option) (pods, networkpolicy.Policies)
	// apiServers are that of the Service and one behind it.
	apiServers []networkpolicy.End
}

var forms = map[string]form{
	"kustomize": {
		func(t *testing.T, options []option) (pods, networkpolicy.Policies) {
			installed := installations.Kustomize(t, "default", append([]string{"job-service", "network-policy"}, components(options)...)...)
			return podsOf(installed), append(policiesOf(t, installed.Objects), documented(t, installed.Namespace, options)...)
		},
		// No cluster has this address: an overlay puts others in its place.
		[]networkpolicy.End{address("192.0.2.1")},
	},
	// The policies are those of kustomize, for what OLM installs.
	"OLM": {
		func(t *testing.T, options []option) (pods, networkpolicy.Policies) {
			installed, beside := installations.Bundle(t), installations.Kustomize(t, "base", components(options)...)
			return podsOf(installed), append(policiesOf(t, beside.Objects), documented(t, installed.Namespace, options)...)
		},
		[]networkpolicy.End{address("192.0.2.1")},
	},
	"chart": {
		func(t *testing.T, options []option) (pods, networkpolicy.Policies) {
			installed := installations.Chart(t, "trainers", values(t, options)...)
			return podsOf(installed), policiesOf(t, installed.Objects)
		},
		[]networkpolicy.End{address("10.96.0.1"), address("10.0.0.2")},
	},
}

var allOptions = []option{cloud, metadataServer, ofManager, ofJobService}

func components(options []option) []string {
	found := []string{"network-policy-egress"}
	for option, component := range map[option]string{cloud: "cloud", metadataServer: "metadata-server"} {
		if slices.Contains(options, option) {
			found = append(found, "network-policy-egress/"+component)
		}
	}
	return found
}

const egressValues = "--set=networkPolicy.egress.enabled=true,networkPolicy.egress.apiServer.cidrs={10.96.0.1/32,10.0.0.2/32}"

// values of the chart. The rules of ofManager and ofJobService are those of docs/network-policies.md.
func values(t *testing.T, options []option) []string {
	t.Helper()
	arguments := []string{egressValues, "--set=jobService.enabled=true,networkPolicy.enabled=true"}
	var file struct {
		NetworkPolicy struct {
			Egress struct {
				Manager, JobService []networkingv1.NetworkPolicyEgressRule
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(block(t, "yaml fragment", "networkPolicy:")), &file))
	for _, o := range options {
		value := strings.Trim(string(o), "`")
		switch o {
		case ofManager:
			arguments = append(arguments, "--set-json="+value+"="+inJSON(t, file.NetworkPolicy.Egress.Manager))
		case ofJobService:
			arguments = append(arguments, "--set-json="+value+"="+inJSON(t, file.NetworkPolicy.Egress.JobService))
		default:
			arguments = append(arguments, "--set="+value+"=true")
		}
	}
	return arguments
}

func inJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// documented are the policies that docs/network-policies.md has for ofManager and ofJobService where there is no chart.
func documented(t *testing.T, namespace string, options []option) (found networkpolicy.Policies) {
	t.Helper()
	names := map[string]option{"manager-to-my-servers": ofManager, "job-service-to-my-servers": ofJobService}
	objects := installations.Decode(t, block(t, "yaml", "kind: NetworkPolicy"))
	require.Len(t, objects, len(names))
	for _, object := range objects {
		require.Contains(t, names, object.GetName())
		if slices.Contains(options, names[object.GetName()]) {
			object.SetNamespace(namespace)
			found = append(found, policyOf(t, object))
		}
	}
	return found
}

// block is the one in docs/network-policies.md with such a fence that has a text.
func block(t *testing.T, fence, text string) string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile("(?sm)^```"+fence+"\n(.*?)^```$").FindAllStringSubmatch(networkPage(t), -1) {
		if strings.Contains(match[1], text) {
			found = append(found, match[1])
		}
	}
	require.Len(t, found, 1, "blocks with %s", text)
	return found[0]
}

func policiesOf(t *testing.T, objects []client.Object) (found networkpolicy.Policies) {
	t.Helper()
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "NetworkPolicy" {
			found = append(found, policyOf(t, object.(*unstructured.Unstructured)))
		}
	}
	return found
}

func policyOf(t *testing.T, object *unstructured.Unstructured) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, policy, true), object.GetName())
	return policy
}

func TestThePoliciesAllowWhatTheCodeOpensAndNothingElse(t *testing.T) {
	sets := map[string][]option{"no option": nil, "all options": allOptions}
	for _, o := range allOptions {
		sets[strings.Trim(string(o), "`")] = []option{o}
	}
	for name, f := range forms {
		for set, options := range sets {
			t.Run(name+", "+set, func(t *testing.T) {
				t.Parallel()
				installed, policies := f.install(t, options)
				w := newWorld(installed, f.apiServers...)
				for _, c := range w.connections() {
					for _, sample := range c.samples {
						if c.option == always || slices.Contains(options, c.option) {
							assert.True(t, policies.Allow(t, sample), "%s cannot reach %s at %d", c.from, c.to, sample.Port)
						} else {
							assert.False(t, policies.MayAllow(t, sample), "%s reaches %s at %d without %s", c.from, c.to, sample.Port, c.option)
						}
					}
				}
				forbidden, withAll := w.forbidden()
				if len(options) > 0 {
					forbidden = withAll
				}
				for what, c := range forbidden {
					assert.False(t, policies.MayAllow(t, c), what)
				}
				if len(options) == len(allOptions) {
					w.needEachRule(t, policies)
				}
			})
		}
	}
}

// needEachRule fails for a rule that no connection needs: it would be one for attackers alone.
func (w *world) needEachRule(t *testing.T, policies networkpolicy.Policies) {
	t.Helper()
	isBlocked := func() bool {
		return slices.ContainsFunc(w.connections(), func(c connection) bool {
			return slices.ContainsFunc(c.samples, func(sample networkpolicy.Connection) bool { return !policies.Allow(t, sample) })
		})
	}
	require.False(t, isBlocked())
	rules := 0
	for _, policy := range policies {
		all := policy.Spec.Egress
		for i, rule := range all {
			rules++
			policy.Spec.Egress = slices.Delete(slices.Clone(all), i, i+1)
			assert.True(t, isBlocked(), "nothing needs rule %d of %s: %v", i, policy.Name, rule)
		}
		policy.Spec.Egress = all
	}
	assert.Greater(t, rules, 10)
}

// Nothing is closed unless it is asked for.
func TestWithoutTheOptionNothingIsClosed(t *testing.T) {
	for name, installed := range map[string]*installations.Installation{
		"kustomize": installations.Kustomize(t, "default", "job-service", "network-policy"),
		"chart":     installations.Chart(t, "trainers", "--set=jobService.enabled=true,networkPolicy.enabled=true"),
		// As helm upgrade --reuse-values has it, which knows no values that are new.
		"chart, by the values of 0.3.0": installations.Chart(t, "trainers", "--set=jobService.enabled=true,networkPolicy.enabled=true,networkPolicy.egress=null"),
	} {
		policies := policiesOf(t, installed.Objects)
		assert.Len(t, policies, 3, name)
		w := newWorld(podsOf(installed), address("10.96.0.1"), address("10.0.0.2"))
		for _, c := range w.connections() {
			for _, sample := range c.samples {
				assert.True(t, policies.Allow(t, sample), "%s: %s to %s", name, c.from, c.to)
			}
		}
	}
}

func TestAReleaseOfSomeNamespacesReachesTheJobsOfTheseAlone(t *testing.T) {
	installed := installations.Chart(t, "team-a-operator", egressValues, "--set=namespaces={team-a}")
	policies := policiesOf(t, installed.Objects)
	require.Len(t, policies, 1)
	w := newWorld(podsOf(installed), address("10.96.0.1"), address("10.0.0.2"))
	for _, c := range w.connections() {
		if c.from == "manager" && c.option == always && c.to != "job service" {
			for _, sample := range c.samples {
				assert.True(t, policies.Allow(t, sample), "%s", c.to)
			}
		}
	}
	elsewhere := w.worker
	elsewhere.Namespace = "team-b"
	assert.False(t, policies.MayAllow(t, tcp(w.manager, elsewhere, w.metricsPort)))
	_, never := w.forbidden()
	for what, c := range never {
		if c.From.Labels["control-plane"] == "controller-manager" {
			assert.False(t, policies.MayAllow(t, c), what)
		}
	}
}

// The DNS, the ports and the provider of another cluster.
func TestValuesReplaceWhatIsAllowedByDefault(t *testing.T) {
	installed := installations.Chart(t, "trainers", egressValues, "--set=jobService.enabled=true,networkPolicy.egress.cloud.enabled=true",
		"--set=networkPolicy.egress.apiServer.ports={8443},networkPolicy.egress.dns.ports={5353},networkPolicy.egress.cloud.cidrs={199.36.153.8/30}",
		`--set-json=networkPolicy.egress.dns.to=[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"openshift-dns"}}},{"ipBlock":{"cidr":"169.254.20.10/32"}}]`)
	policies := policiesOf(t, installed.Objects)
	w := newWorld(podsOf(installed), address("10.96.0.1"), address("10.0.0.2"))
	openshift := pod("openshift-dns", "10.1.0.11", nil)
	for _, from := range []networkpolicy.End{w.manager, w.jobService} {
		for _, c := range []networkpolicy.Connection{
			tcp(from, w.apiServer, 8443), udp(from, openshift, 5353), tcp(from, openshift, 5353), udp(from, address("169.254.20.10"), 5353),
		} {
			assert.True(t, policies.Allow(t, c), "%v", c)
		}
		for _, c := range []networkpolicy.Connection{tcp(from, w.apiServer, 6443), tcp(from, w.apiServerService, 443), udp(from, w.dns, 53)} {
			assert.False(t, policies.MayAllow(t, c), "%v", c)
		}
	}
	assert.True(t, policies.Allow(t, tcp(w.manager, address("199.36.153.9"), 443)))
	assert.False(t, policies.MayAllow(t, tcp(w.manager, w.compute, 443)))
	assert.False(t, policies.MayAllow(t, tcp(w.jobService, address("199.36.153.9"), 443)))
}
