package nodejoin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
)

// pemRequest is a certificate request for a subject.
func pemRequest(t *testing.T, of x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &of, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestOnlyTheInstanceOfATokenGetsACertificateAndOnlyForItsNode(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	subject := func(name string, groups ...string) x509.CertificateRequest {
		return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}
	}
	node := func(age time.Duration, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "t4-aaaaa", CreationTimestamp: metav1.NewTime(made.Add(-age))}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	tests := map[string]struct {
		subject x509.CertificateRequest
		change  func(*certificatesv1.CertificateSigningRequest, *corev1.Secret)
		node    *corev1.Node
		refused string
	}{
		"that of the instance":       {},
		"again while it is starting": {node: node(-time.Minute, corev1.ConditionFalse)},
		"the name of another node": {
			subject: subject("system:node:control-plane", "system:nodes"), refused: `asks for the name "system:node:control-plane"`,
		},
		"no name of a node": {subject: subject("t4-aaaaa", "system:nodes"), refused: `asks for the name "t4-aaaaa"`},
		"another group":     {subject: subject("system:node:t4-aaaaa", "system:nodes", "system:masters"), refused: "asks for the groups"},
		"no group":          {subject: subject("system:node:t4-aaaaa"), refused: "asks for the groups"},
		"other names": {
			subject: x509.CertificateRequest{
				Subject: pkix.Name{CommonName: "system:node:t4-aaaaa", Organization: []string{"system:nodes"}}, DNSNames: []string{"kubernetes"},
			},
			refused: "asks for other names",
		},
		"the usage of a server": {
			change: func(r *certificatesv1.CertificateSigningRequest, _ *corev1.Secret) {
				r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageServerAuth)
			},
			refused: "asks for the usages",
		},
		"another signer": {
			change: func(r *certificatesv1.CertificateSigningRequest, _ *corev1.Secret) {
				r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
			},
			refused: "is not that of kubelets",
		},
		"the token of another instance": {
			change:  func(_ *certificatesv1.CertificateSigningRequest, s *corev1.Secret) { s.Name = "bootstrap-token-bbbbbb" },
			refused: "has no token of an instance",
		},
		"a token that the operator has not made": {
			change:  func(_ *certificatesv1.CertificateSigningRequest, s *corev1.Secret) { s.Labels = nil },
			refused: "has no token of an instance",
		},
		"a token that kubeadm's cluster approves for any node": {
			change: func(_ *certificatesv1.CertificateSigningRequest, s *corev1.Secret) {
				s.Data["auth-extra-groups"] = []byte("system:bootstrappers:kubeadm:default-node-token")
			},
			refused: "has no token of an instance",
		},
		"no token": {
			change: func(r *certificatesv1.CertificateSigningRequest, _ *corev1.Secret) {
				r.Spec.Username = "system:node:other"
			},
			refused: "has no token of an instance",
		},
		"a second time once the node is Ready":     {node: node(-time.Minute, corev1.ConditionTrue), refused: "has joined already"},
		"an older node of the name of an instance": {node: node(time.Minute, corev1.ConditionFalse), refused: "is another machine"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.subject.Subject.CommonName == "" {
				test.subject = subject("system:node:t4-aaaaa", "system:nodes")
			}
			token := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-aaaaaa", CreationTimestamp: made, Labels: map[string]string{
					"app.kubernetes.io/managed-by": "spot-training-operator", "training.dcnlab.com/instance": "t4-aaaaa",
				}},
				Type: corev1.SecretTypeBootstrapToken,
				Data: map[string][]byte{"auth-extra-groups": []byte("system:bootstrappers:spot-training-operator")},
			}
			request := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: "system:bootstrap:aaaaaa",
				Request: pemRequest(t, test.subject), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			}}
			if test.change != nil {
				test.change(request, token)
			}
			err := nodejoin.CheckRequest(request, token, test.node)
			if test.refused == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.refused)
		})
	}
}
