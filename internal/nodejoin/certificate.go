package nodejoin

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// TokenSecret is the name of the Secret in kube-system with the bootstrap token of a user; empty when the user has none.
func TokenSecret(user string) string {
	id, ok := strings.CutPrefix(user, bootstrapapi.BootstrapUserPrefix)
	if !ok || id == "" {
		return ""
	}
	return bootstraputil.BootstrapTokenSecretName(id)
}

// InstanceOf is the name of the instance that a bootstrap token was made for; empty for a token that Tokens has not made.
func InstanceOf(token *corev1.Secret) string {
	ours := token.Type == bootstrapapi.SecretTypeBootstrapToken && token.Labels[labelManager] == manager &&
		bootstrapsecrets.GetData(token, bootstrapapi.BootstrapTokenExtraGroupsKey) == tokenGroup
	if !ours {
		return ""
	}
	return token.Labels[labelInstance]
}

// CheckRequest says why a request for a certificate is not that of the instance that joins with the token; nil when it is. Who has the
// token gets the certificate of that instance's node and no other, until this node is Ready. node is the one of the instance's name; nil
// when there is none.
func CheckRequest(request *certificatesv1.CertificateSigningRequest, token *corev1.Secret, node *corev1.Node) error {
	name := InstanceOf(token)
	switch {
	case name == "" || TokenSecret(request.Spec.Username) != token.Name:
		return fmt.Errorf("%s has no token of an instance", request.Spec.Username)
	case request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName:
		return fmt.Errorf("signer %s is not that of kubelets", request.Spec.SignerName)
	case node != nil && node.CreationTimestamp.Before(&token.CreationTimestamp):
		return fmt.Errorf("node %s is older than the token of the instance, so it is another machine", node.Name)
	case node != nil && isReady(node):
		return fmt.Errorf("node %s has joined already", node.Name)
	}
	return checkSubject(request, name)
}

// checkSubject holds that a request is for what identifies one node to the API server.
func checkSubject(request *certificatesv1.CertificateSigningRequest, node string) error {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return errors.New("it holds no certificate request in PEM form")
	}
	is, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("its certificate request cannot be read: %w", err)
	}
	switch {
	case is.Subject.CommonName != nodeUserPrefix+node:
		return fmt.Errorf("it asks for the name %q, and its token is for %q", is.Subject.CommonName, nodeUserPrefix+node)
	case !slices.Equal(is.Subject.Organization, []string{nodesGroup}):
		return fmt.Errorf("it asks for the groups %q, and nodes have %q", is.Subject.Organization, nodesGroup)
	case len(is.DNSNames)+len(is.EmailAddresses)+len(is.IPAddresses)+len(is.URIs) > 0:
		return errors.New("it asks for other names, which the certificate of a client has not")
	case slices.ContainsFunc(request.Spec.Usages, func(usage certificatesv1.KeyUsage) bool { return !slices.Contains(clientUsages, usage) }):
		return fmt.Errorf("it asks for the usages %q, and the certificate of a client has %q", request.Spec.Usages, clientUsages)
	}
	return nil
}

// clientUsages are those of the certificate with which a kubelet asks the API server.
var clientUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
