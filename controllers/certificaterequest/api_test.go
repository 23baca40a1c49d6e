package certificaterequest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// server is a real API server that takes bootstrap tokens.
var server = apiserver.New(func(env *envtest.Environment) {
	env.ControlPlane.GetAPIServer().Configure().Append("enable-bootstrap-token-auth", "true")
})

func TestMain(m *testing.M) { server.Main(m) }

// install creates the objects in a file of config/node-join.
func install(t *testing.T, api client.Client, name string) {
	t.Helper()
	file, err := os.Open(filepath.Join(apiserver.Root(), "config", "node-join", name))
	require.NoError(t, err)
	defer file.Close()
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			require.ErrorContains(t, err, "EOF")
			return
		}
		require.NoError(t, api.Create(t.Context(), object))
	}
}

// kubelet asks for a certificate as that of an instance does: with a bootstrap token and nothing else.
type kubelet struct {
	client.Client

	t *testing.T
}

func newKubelet(t *testing.T, api client.Client, token string) kubelet {
	t.Helper()
	anonymous := rest.AnonymousClientConfig(server.Config(t))
	anonymous.BearerToken = token
	c, err := client.New(anonymous, client.Options{Mapper: api.RESTMapper()})
	require.NoError(t, err)
	return kubelet{c, t}
}

// asks for the certificate of a node.
func (k kubelet) asks(node string) *certificatesv1.CertificateSigningRequest {
	k.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(k.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	require.NoError(k.t, err)
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"}}
	request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	request.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	// The API server takes a moment to hear of the token and of its rights.
	require.Eventually(k.t, func() bool { return k.Create(k.t.Context(), request) == nil }, time.Minute, 50*time.Millisecond)
	return request
}

// The attack: who may read the metadata of an instance has its token, and asks with it for the certificate of another node, or for one
// more when the node is there.
func TestATokenGetsTheCertificateOfItsInstanceAndNoOther(t *testing.T) {
	api, err := client.New(server.Config(t), client.Options{})
	require.NoError(t, err)
	install(t, api, "bootstrap_role.yaml")
	instance := nodejoin.Instance{Name: "t4-aaaaa", VM: types.NamespacedName{Namespace: "team", Name: "t4"}}
	token, err := nodejoin.Tokens{Client: api, Reader: api}.Make(t.Context(), instance, time.Hour)
	require.NoError(t, err)
	machine := newKubelet(t, api, token)
	r := &Reconciler{Client: api, Direct: api}
	approves := func(request *certificatesv1.CertificateSigningRequest) bool {
		t.Helper()
		_, err := r.Reconcile(t.Context(), reconciling.Named("", request.Name))
		require.NoError(t, err)
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(request), request))
		return len(request.Status.Conditions) == 1 && request.Status.Conditions[0].Type == certificatesv1.CertificateApproved
	}

	assert.False(t, approves(machine.asks("control-plane")), "the name of another node")
	assert.False(t, approves(machine.asks("t4-bbbbb")), "the name of another instance")
	first := machine.asks("t4-aaaaa")
	assert.Equal(t, "system:bootstrap:"+token[:6], first.Spec.Username)
	assert.True(t, approves(first))
	assert.True(t, approves(machine.asks("t4-aaaaa")), "kubeadm join tries again, with another key")

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "t4-aaaaa"}}
	require.NoError(t, api.Create(t.Context(), node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, api.Status().Update(t.Context(), node))
	assert.False(t, approves(machine.asks("t4-aaaaa")), "the node is Ready")

	foreign := newKubelet(t, api, foreignToken(t, api))
	assert.False(t, approves(foreign.asks("t4-ccccc")), "a token that the operator has not made")
}

// foreignToken makes a token of the operator's group as any administrator can.
func foreignToken(t *testing.T, api client.Client) string {
	t.Helper()
	require.NoError(t, api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-ffffff"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "ffffff", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": "system:bootstrappers:spot-training-operator",
		},
	}))
	return "ffffff.0123456789abcdef"
}
