// Package nodejoin makes a node of this cluster out of a fresh instance: it makes and revokes bootstrap tokens, finds out
// what an instance must know of the cluster, and has kubeadm join run on the instance, by a startup script or over SSH.
//
// Nothing here waits but OverSSH.
package nodejoin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
func (j Join) token() string {
	if j.Token != "" {
		return j.Token
	}
	return j.Cluster.Token
}

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
	labels := maps.Clone(j.Instance.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[spotv1alpha1.LabelSpotInstanceVM] = j.Instance.VM.Name
	labels[spotv1alpha1.LabelSpotInstanceVMNamespace] = j.Instance.VM.Namespace
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}

// joinConfiguration is kubeadm's JoinConfiguration, as far as it is used.
type joinConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Discovery  struct {
		BootstrapToken struct {
			APIServerEndpoint string   `json:"apiServerEndpoint"`
			Token             string   `json:"token"`
			CACertHashes      []string `json:"caCertHashes"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	NodeRegistration struct {
		Name             string         `json:"name"`
		Taints           []corev1.Taint `json:"taints,omitempty"`
		KubeletExtraArgs any            `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
}

// argument of the kubelet, as kubeadm.k8s.io/v1beta4 has it.
type argument struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// configuration for kubeadm, in one line of JSON. Version v1beta4 came with kubeadm 1.31; before, arguments of the kubelet
// were a map.
func (j Join) configuration(version string) (string, error) {
	config := joinConfiguration{APIVersion: "kubeadm.k8s.io/" + version, Kind: "JoinConfiguration"}
	token := &config.Discovery.BootstrapToken
	token.APIServerEndpoint = j.Cluster.Endpoint
	token.Token = j.token()
	token.CACertHashes = []string{j.Cluster.CACertHash}
	node := &config.NodeRegistration
	node.Name = j.Instance.Name
	node.Taints = j.Instance.Taints
	arguments := []argument{{"node-labels", j.nodeLabels()}}
	if j.Instance.ProviderID != "" {
		arguments = append(arguments, argument{"provider-id", j.Instance.ProviderID})
	}
	node.KubeletExtraArgs = arguments
	if version == "v1beta3" {
		byName := map[string]string{}
		for _, a := range arguments {
			byName[a.Name] = a.Value
		}
		node.KubeletExtraArgs = byName
	}
	text, err := json.Marshal(config)
	return string(text), err
}
