package networkpolicy

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Each case is a rule of the API's documentation: https://kubernetes.io/docs/concepts/services-networking/network-policies/.
func TestWhatPoliciesAllow(t *testing.T) {
	server, client := pod("shop", "app=db"), pod("shop", "app=web")
	server.Address, server.Ports = netip.MustParseAddr("10.1.0.5"), map[string]int32{"sql": 5432}
	elsewhere := pod("lab", "app=web")
	elsewhere.NamespaceLabels = map[string]string{"team": "lab"}
	for name, test := range map[string]struct {
		spec    string
		from    End
		to      End
		port    int32
		udp     bool
		allowed bool
		// may is the same on a plugin for which blocks of addresses have those of pods.
		may bool
	}{
		"no policy":                       {"", client, server, 5432, false, true, true},
		"a policy for other pods":         {"podSelector: {matchLabels: {app: mail}}", client, server, 5432, false, true, true},
		"no rule":                         {"podSelector: {}", client, server, 5432, false, false, false},
		"by default it is for ingress":    {"podSelector: {matchLabels: {app: web}}", client, server, 5432, false, true, true},
		"with rules of egress for both":   {"{podSelector: {matchLabels: {app: web}}, egress: [{ports: [{port: 80}]}]}", client, server, 5432, false, false, false},
		"an ingress rule for all":         {"{podSelector: {}, ingress: [{}]}", client, server, 5432, false, true, true},
		"an egress rule for all":          {"{podSelector: {}, policyTypes: [Egress], egress: [{}]}", client, server, 5432, false, true, true},
		"ingress leaves egress alone":     {"{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}", client, external("8.8.8.8"), 53, true, true, true},
		"egress leaves ingress alone":     {"{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}", client, server, 5432, false, true, true},
		"both directions must allow":      {"{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}]}", client, server, 5432, false, false, false},
		"pods of the namespace":           {from("podSelector: {matchLabels: {app: web}}"), client, server, 5432, false, true, true},
		"not those of another":            {from("podSelector: {matchLabels: {app: web}}"), elsewhere, server, 5432, false, false, false},
		"all namespaces":                  {from("namespaceSelector: {}"), elsewhere, server, 5432, false, true, true},
		"a namespace by its name":         {from("namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: lab}}"), elsewhere, server, 5432, false, true, true},
		"a namespace by a label":          {from("namespaceSelector: {matchLabels: {team: lab}}"), elsewhere, server, 5432, false, true, true},
		"both selectors, one fails":       {from("{namespaceSelector: {}, podSelector: {matchLabels: {app: mail}}}"), elsewhere, server, 5432, false, false, false},
		"a label that exists":             {from("podSelector: {matchExpressions: [{key: app, operator: Exists}]}"), client, server, 5432, false, true, true},
		"all pods are no addresses":       {from("namespaceSelector: {}"), external("192.0.2.1"), server, 5432, false, false, false},
		"a port":                          {at("port: 5432"), client, server, 5432, false, true, true},
		"another port":                    {at("port: 5433"), client, server, 5432, false, false, false},
		"TCP unless it says otherwise":    {at("port: 5432"), client, server, 5432, true, false, false},
		"another protocol":                {at("{port: 5432, protocol: UDP}"), client, server, 5432, true, true, true},
		"all ports of a protocol":         {at("protocol: UDP"), client, server, 999, true, true, true},
		"the first port of a range":       {at("{port: 5432, endPort: 5434}"), client, server, 5432, false, true, true},
		"the last":                        {at("{port: 5432, endPort: 5434}"), client, server, 5434, false, true, true},
		"one after it":                    {at("{port: 5432, endPort: 5434}"), client, server, 5435, false, false, false},
		"a port by its name":              {at("port: sql"), client, server, 5432, false, true, true},
		"another port than that":          {at("port: sql"), client, server, 5433, false, false, false},
		"a name that the pod has not":     {at("port: http"), client, server, 5432, false, false, false},
		"an address":                      {to("ipBlock: {cidr: 192.0.2.0/24}"), client, external("192.0.2.7"), 443, false, true, true},
		"another address":                 {to("ipBlock: {cidr: 192.0.2.0/24}"), client, external("198.51.100.7"), 443, false, false, false},
		"an address that is left out":     {to("ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/28]}"), client, external("192.0.2.7"), 443, false, false, false},
		"an address of the other family":  {to("ipBlock: {cidr: 0.0.0.0/0}"), client, external("2001:db8::1"), 443, false, false, false},
		"an address that is a pod's":      {to("ipBlock: {cidr: 10.1.0.0/16}"), client, server, 5432, false, false, true},
		"all addresses, and no pods":      {to("ipBlock: {cidr: 0.0.0.0/0}"), client, server, 5432, false, false, true},
		"what is no pod has no policies":  {"{podSelector: {}, policyTypes: [Egress]}", external("192.0.2.7"), server, 5432, false, true, true},
		"a policy of another namespace":   {"{podSelector: {}, policyTypes: [Egress]}", elsewhere, server, 5432, false, true, true},
		"one of several peers":            {to("podSelector: {matchLabels: {app: mail}}}, {ipBlock: {cidr: 192.0.2.7/32}"), client, external("192.0.2.7"), 1, false, true, true},
		"a rule's port and peer together": {"{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 1}], to: [{podSelector: {}}]}]}", client, server, 2, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var policies Policies
			if test.spec != "" {
				policies = Policies{policy(t, test.spec)}
			}
			connection := Connection{From: test.from, To: test.to, Port: test.port}
			if test.udp {
				connection.Protocol = corev1.ProtocolUDP
			}
			assert.Equal(t, test.allowed, policies.Allow(t, connection), "on every plugin")
			assert.Equal(t, test.may, policies.MayAllow(t, connection), "on one for which blocks have pods")
		})
	}
}

func TestPoliciesAddUp(t *testing.T) {
	client, address := pod("shop", "app=web"), external("192.0.2.7")
	closed, open := policy(t, "{podSelector: {}, policyTypes: [Egress]}"), policy(t, to("ipBlock: {cidr: 192.0.2.7/32}"))
	connection := Connection{From: client, To: address, Port: 443}
	assert.False(t, Policies{closed}.Allow(t, connection))
	assert.True(t, Policies{closed, open}.Allow(t, connection))
	assert.True(t, Policies{open, closed}.Allow(t, connection), "in any order")
}

// policy of the namespace shop.
func policy(t *testing.T, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec), spec)
	return p
}

func pod(namespace, label string) End {
	parsed, err := metav1.ParseToLabelSelector(label)
	if err != nil {
		panic(err) // a constant
	}
	return End{Namespace: namespace, Labels: parsed.MatchLabels}
}

func external(address string) End { return End{Address: netip.MustParseAddr(address)} }

// braced is a YAML mapping in one line.
func braced(fields string) string {
	if fields[0] == '{' {
		return fields
	}
	return "{" + fields + "}"
}

func from(peer string) string {
	return "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [" + braced(peer) + "]}]}"
}

func at(port string) string {
	return "{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [" + braced(port) + "]}]}"
}

func to(peer string) string {
	return "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [" + braced(peer) + "]}]}"
}
