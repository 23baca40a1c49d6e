// Package networkpolicy says which connections NetworkPolicies allow, as the API defines it, for tests on clusters without a network plugin
// that enforces them. A pod that a policy selects for a direction may open, or take, what one of the rules of all such policies allows; any
// other pod may open, or take, everything.
//
// Left out is what no policy closes: the connections of a pod to itself, those between a pod and its own node, and pods in the network of
// their node.
package networkpolicy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// End is one end of a connection: a pod, or what is no pod and has an address alone.
type End struct {
	// Namespace of the pod; empty for what is no pod.
	Namespace string
	// NamespaceLabels beside kubernetes.io/metadata.name, which each Namespace has.
	NamespaceLabels map[string]string
	// Labels of the pod.
	Labels map[string]string
	// Ports of the pod's containers by their names.
	Ports map[string]int32
	// Address of either; a pod may do without.
	Address netip.Addr
}

func (e End) isPod() bool { return e.Namespace != "" }

func (e End) namespaceLabels() labels.Set {
	return labels.Merge(e.NamespaceLabels, labels.Set{corev1.LabelMetadataName: e.Namespace})
}

// Connection is opened by From, to a port of To.
type Connection struct {
	From, To End
	// Protocol is TCP unless it is set.
	Protocol corev1.Protocol
	Port     int32
}

// Policies hold together.
type Policies []*networkingv1.NetworkPolicy

// Allow says whether every network plugin allows the connection, for the pods at both of its ends. Whether the addresses of a rule are also
// those of pods is left to the plugin: here they are not.
func (p Policies) Allow(t testing.TB, c Connection) bool {
	t.Helper()
	return p.allow(t, c, false)
}

// MayAllow says whether a network plugin may allow the connection: one for which the addresses of a rule are also those of pods.
func (p Policies) MayAllow(t testing.TB, c Connection) bool {
	t.Helper()
	return p.allow(t, c, true)
}

func (p Policies) allow(t testing.TB, c Connection, podsByAddress bool) bool {
	t.Helper()
	e := evaluation{t, c, podsByAddress}
	out, in := e.direction(c.From, c.To, networkingv1.PolicyTypeEgress), e.direction(c.To, c.From, networkingv1.PolicyTypeIngress)
	return p.permits(out) && p.permits(in)
}

// rule of either direction.
type rule struct {
	ports []networkingv1.NetworkPolicyPort
	peers []networkingv1.NetworkPolicyPeer
}

// direction of a connection, as seen by the pod whose policies decide.
type direction struct {
	evaluation

	own, other End
	kind       networkingv1.PolicyType
}

type evaluation struct {
	t             testing.TB
	connection    Connection
	podsByAddress bool
}

func (e evaluation) direction(own, other End, kind networkingv1.PolicyType) direction {
	return direction{e, own, other, kind}
}

func (p Policies) permits(d direction) bool {
	d.t.Helper()
	if !d.own.isPod() {
		return true
	}
	isolated := false
	for _, policy := range p {
		if policy.Namespace != d.own.Namespace || !d.selects(&policy.Spec.PodSelector, d.own.Labels) || !slices.Contains(types(policy), d.kind) {
			continue
		}
		isolated = true
		for _, r := range rules(policy, d.kind) {
			if d.hasPort(r.ports) && d.hasPeer(policy.Namespace, r.peers) {
				return true
			}
		}
	}
	return !isolated
}

// types are those of the policy, with the API server's default.
func types(policy *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	if len(policy.Spec.PolicyTypes) > 0 {
		return policy.Spec.PolicyTypes
	}
	preset := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(policy.Spec.Egress) > 0 {
		preset = append(preset, networkingv1.PolicyTypeEgress)
	}
	return preset
}

func rules(policy *networkingv1.NetworkPolicy, kind networkingv1.PolicyType) (all []rule) {
	if kind == networkingv1.PolicyTypeEgress {
		for _, r := range policy.Spec.Egress {
			all = append(all, rule{r.Ports, r.To})
		}
		return all
	}
	for _, r := range policy.Spec.Ingress {
		all = append(all, rule{r.Ports, r.From})
	}
	return all
}

func (d direction) hasPort(ports []networkingv1.NetworkPolicyPort) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		wanted := d.connection.Protocol
		if wanted == "" {
			wanted = corev1.ProtocolTCP
		}
		port := d.connection.Port
		switch {
		case protocol != wanted:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			named, ok := d.connection.To.Ports[p.Port.StrVal]
			return ok && named == port
		case p.EndPort != nil:
			return p.Port.IntVal <= port && port <= *p.EndPort
		}
		return p.Port.IntVal == port
	})
}

func (d direction) hasPeer(namespace string, peers []networkingv1.NetworkPolicyPeer) bool {
	d.t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return d.hasAddress(peer.IPBlock)
		}
		require.False(d.t, peer.NamespaceSelector == nil && peer.PodSelector == nil, "a peer without any field, which the API server refuses")
		if !d.other.isPod() {
			return false
		}
		if peer.NamespaceSelector == nil {
			return d.other.Namespace == namespace && d.selects(peer.PodSelector, d.other.Labels)
		}
		return d.selects(peer.NamespaceSelector, d.other.namespaceLabels()) && (peer.PodSelector == nil || d.selects(peer.PodSelector, d.other.Labels))
	})
}

func (d direction) hasAddress(block *networkingv1.IPBlock) bool {
	d.t.Helper()
	address := d.other.Address
	if !address.IsValid() || d.other.isPod() && !d.podsByAddress {
		return false
	}
	within := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		require.NoError(d.t, err)
		return prefix.Contains(address)
	}
	return within(block.CIDR) && !slices.ContainsFunc(block.Except, within)
}

func (d direction) selects(selector *metav1.LabelSelector, of labels.Set) bool {
	d.t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(d.t, err)
	return parsed.Matches(of)
}
