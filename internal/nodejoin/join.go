// Package nodejoin makes a node of this cluster out of a fresh instance: it makes and revokes bootstrap tokens, finds out
// what an instance must know of the cluster, and has kubeadm join run on the instance, by a startup script or over SSH.
//
// Nothing here waits but OverSSH.
package nodejoin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// Instance is the machine that joins.
type Instance struct {
	// Name of the instance, and of the node that it becomes.
	Name string
	// VM is the SpotInstanceVM that it belongs to.
	VM types.NamespacedName
	// Labels of the node, besides the two that name the SpotInstanceVM.
	Labels map[string]string
	// Taints of the node from its first moment.
	Taints []corev1.Taint
	// ProviderID of the node; what the kubelet finds out by itself when empty.
	ProviderID string
}

// Cluster is what an instance must know of the cluster that it joins.
type Cluster struct {
	// Endpoint is the host and port of the API server.
	Endpoint string
	// CACertHash is sha256: and the hash of the public key of the cluster's root certificate.
	CACertHash string
	// Token of the user's Secret; empty when there is none and Tokens shall make one.
	Token string
}

// Join is all of one joining.
type Join struct {
	Instance Instance
	Cluster  Cluster
	// Token replaces Cluster.Token when it is set.
	Token string
}

// token with which the instance joins.
func (j Join) token() string { return cmp.Or(j.Token, j.Cluster.Token) }

// secret is the part of the token that must not be shown.
func (j Join) secret() string {
	_, secret, _ := strings.Cut(j.token(), ".")
	return secret
}

// validate finds what would only fail on the instance, minutes later.
func (j Join) validate() error {
	switch {
	case j.Instance.Name == "":
		return fmt.Errorf("the instance has no name")
	case j.Cluster.Endpoint == "":
		return fmt.Errorf("instance %s: the cluster has no endpoint", j.Instance.Name)
	case j.Cluster.CACertHash == "":
		return fmt.Errorf("instance %s: the cluster has no CA certificate hash", j.Instance.Name)
	case !bootstraputil.IsValidBootstrapToken(j.token()):
		return fmt.Errorf("instance %s: there is no bootstrap token of the form abcdef.0123456789abcdef", j.Instance.Name)
	}
	return nil
}

// nodeLabels are all labels that the node gives itself, sorted, as the kubelet takes them.
func (j Join) nodeLabels() string {
	labels := labels.Merge(j.Instance.Labels, labels.Set{
		spotv1alpha1.LabelSpotInstanceVM: j.Instance.VM.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: j.Instance.VM.Namespace,
	})
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}

// configuration is kubeadm's JoinConfiguration, as far as it is used, in one line of JSON. Version v1beta4 came with kubeadm
// 1.31; before, arguments of the kubelet were a map.
func (j Join) configuration(version string) string {
	arguments := map[string]string{"node-labels": j.nodeLabels()}
	if j.Instance.ProviderID != "" {
		arguments["provider-id"] = j.Instance.ProviderID
	}
	node := map[string]any{"name": j.Instance.Name, "kubeletExtraArgs": arguments}
	if version != "v1beta3" {
		var list []map[string]string
		for _, name := range slices.Sorted(maps.Keys(arguments)) {
			list = append(list, map[string]string{"name": name, "value": arguments[name]})
		}
		node["kubeletExtraArgs"] = list
	}
	if len(j.Instance.Taints) > 0 {
		node["taints"] = j.Instance.Taints
	}
	token := map[string]any{"apiServerEndpoint": j.Cluster.Endpoint, "token": j.token(), "caCertHashes": []string{j.Cluster.CACertHash}}
	text, _ := json.Marshal(map[string]any{
		"apiVersion": "kubeadm.k8s.io/" + version, "kind": "JoinConfiguration",
		"discovery": map[string]any{"bootstrapToken": token}, "nodeRegistration": node,
	})
	return string(text) // of texts alone, which can be encoded
}

// Timeout is spec.joinTimeout, with the default of the API for objects from before it was one.
func Timeout(spec *spotv1alpha1.SpotInstanceVMSpec) time.Duration {
	if d := spec.JoinTimeout.Duration; d > 0 {
		return d
	}
	return 15 * time.Minute
}
