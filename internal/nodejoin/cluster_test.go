package nodejoin_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// server is a real API server that takes bootstrap tokens.
var server = apiserver.New(func(env *envtest.Environment) {
	env.ControlPlane.GetAPIServer().Configure().Append("enable-bootstrap-token-auth", "true")
})

func TestMain(m *testing.M) { server.Main(m) }

func connect(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(server.Config(t), client.Options{})
	require.NoError(t, err)
	return c
}

func instance(name string) nodejoin.Instance {
	return nodejoin.Instance{Name: name, VM: types.NamespacedName{Namespace: "default", Name: "t4"}}
}

// admits says whether the API server takes a token for that of a node that joins.
func admits(t *testing.T, token string) bool {
	t.Helper()
	api := connect(t)
	anonymous := rest.AnonymousClientConfig(server.Config(t))
	anonymous.BearerToken = token
	bearer, err := client.New(anonymous, client.Options{Mapper: api.RESTMapper()})
	require.NoError(t, err)
	err = bearer.Get(t.Context(), client.ObjectKey{Name: "none"}, &corev1.Node{})
	if apierrors.IsForbidden(err) {
		assert.ErrorContains(t, err, "system:bootstrap:"+token[:6])
		return true
	}
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	return false
}

func TestTokenIsMadeOnceAndEndsWhenItIsRevoked(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	tokens := nodejoin.Tokens{Client: api, Reader: api}
	token, err := tokens.Make(ctx, instance("t4-aaaaa"), time.Hour)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return admits(t, token) }, time.Minute, 50*time.Millisecond)

	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + token[:6]}
	require.NoError(t, api.Get(ctx, key, secret))
	assert.Equal(t, corev1.SecretTypeBootstrapToken, secret.Type)
	assert.Equal(t, "system:bootstrappers:spot-training-operator", string(secret.Data["auth-extra-groups"]))
	assert.Contains(t, string(secret.Data["description"]), "instance t4-aaaaa of SpotInstanceVM default/t4")
	assert.Equal(t, "t4", secret.Labels[spotv1alpha1.LabelSpotInstanceVM])
	expires, err := time.Parse(time.RFC3339, string(secret.Data["expiration"]))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(time.Hour), expires, time.Minute)

	again, err := tokens.Make(ctx, instance("t4-aaaaa"), time.Hour)
	require.NoError(t, err)
	assert.Equal(t, token, again, "after a crash the same")
	other, err := tokens.Make(ctx, instance("t4-bbbbb"), time.Hour)
	require.NoError(t, err)
	assert.NotEqual(t, token, other)

	require.NoError(t, tokens.Revoke(ctx, instance("t4-aaaaa")))
	require.NoError(t, tokens.Revoke(ctx, instance("t4-aaaaa")), "twice is harmless")
	// The API server remembers for 10 s whom it has let in.
	require.Eventually(t, func() bool { return !admits(t, token) }, time.Minute, 100*time.Millisecond)
	assert.True(t, admits(t, other), "the other instance's token is another")
	require.NoError(t, tokens.Revoke(ctx, instance("t4-bbbbb")))
}

func TestTokenThatHasExpiredIsReplaced(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	now := time.Now()
	tokens := nodejoin.Tokens{Client: api, Reader: api, Now: func() time.Time { return now }}
	token, err := tokens.Make(ctx, instance("t4-ccccc"), time.Hour)
	require.NoError(t, err)
	now = now.Add(61 * time.Minute)
	another, err := tokens.Make(ctx, instance("t4-ccccc"), time.Hour)
	require.NoError(t, err)
	assert.NotEqual(t, token, another)
	require.NoError(t, tokens.Revoke(ctx, instance("t4-ccccc")))
}

// A token's id has six characters only: one of another user is neither used nor deleted.
func TestTokenOfAnotherUserIsLeftAlone(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	tokens := nodejoin.Tokens{Client: api, Reader: api}
	token, err := tokens.Make(ctx, instance("t4-ddddd"), time.Hour)
	require.NoError(t, err)
	foreign := &corev1.Secret{}
	require.NoError(t, api.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + token[:6]}, foreign))
	foreign.Labels = nil
	require.NoError(t, api.Update(ctx, foreign))

	require.NoError(t, tokens.Revoke(ctx, instance("t4-ddddd")))
	require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(foreign), foreign))
	another, err := tokens.Make(ctx, instance("t4-ddddd"), time.Hour)
	require.NoError(t, err)
	assert.NotEqual(t, token[:6], another[:6])
	require.NoError(t, tokens.Revoke(ctx, instance("t4-ddddd")))
	require.NoError(t, api.Delete(ctx, foreign))
}

func TestForbiddenTokensTellTheRemedy(t *testing.T) {
	api := connect(t)
	anonymous := rest.AnonymousClientConfig(server.Config(t))
	c, err := client.New(anonymous, client.Options{Mapper: api.RESTMapper()})
	require.NoError(t, err)
	_, err = nodejoin.Tokens{Client: c, Reader: c}.Make(t.Context(), instance("t4-eeeee"), time.Hour)
	require.ErrorContains(t, err, "config/node-join")
	require.ErrorContains(t, err, "spec.kubeadmJoinConfig.tokenSecretRef")
}

func TestKeysOutliveTheManagerAndEndWithTheInstance(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	keys := nodejoin.Keys{Client: api, Reader: api, Namespace: "default"}
	key, err := keys.Make(ctx, instance("t4-aaaaa"))
	require.NoError(t, err)
	again, err := keys.Make(ctx, instance("t4-aaaaa"))
	require.NoError(t, err)
	assert.Equal(t, key.AuthorizedKey(), again.AuthorizedKey())
	assert.Contains(t, key.AuthorizedKey(), "ssh-ed25519 ")
	elsewhere := instance("t4-aaaaa")
	elsewhere.VM.Namespace = "another"
	other, err := keys.Make(ctx, elsewhere)
	require.NoError(t, err)
	assert.NotEqual(t, key.AuthorizedKey(), other.AuthorizedKey(), "two SpotInstanceVMs of one name")
	for _, i := range []nodejoin.Instance{instance("t4-aaaaa"), instance("t4-aaaaa"), elsewhere} {
		require.NoError(t, keys.Remove(ctx, i))
	}
	var left corev1.SecretList
	require.NoError(t, api.List(ctx, &left, client.InNamespace("default"), client.MatchingLabels{spotv1alpha1.LabelSpotInstanceVM: "t4"}))
	assert.Empty(t, left.Items)
}

// create makes an object, and deletes it after the test.
func create(t *testing.T, object client.Object) {
	t.Helper()
	api := connect(t)
	require.NoError(t, api.Create(t.Context(), object))
	t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(t.Context()), object) })
}

func secret(t *testing.T, name string, data map[string]string) {
	t.Helper()
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, StringData: data})
}

func TestKeyFromSecret(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	_, err := nodejoin.KeyFromSecret(ctx, api, "default", "absent")
	require.ErrorContains(t, err, "spec.kubeadmJoinConfig.ssh.privateKeySecretRef: there is no Secret absent in namespace default")
	secret(t, "empty", nil)
	_, err = nodejoin.KeyFromSecret(ctx, api, "default", "empty")
	require.ErrorContains(t, err, "Secret empty has no key ssh-privatekey")
	secret(t, "rubbish", map[string]string{"ssh-privatekey": "hunter2"})
	_, err = nodejoin.KeyFromSecret(ctx, api, "default", "rubbish")
	require.ErrorContains(t, err, "is no private key in PEM form")
	assert.NotContains(t, err.Error(), "hunter2")
}

// rootCertificate makes one and returns it with the hash that kubeadm would pin.
func rootCertificate(t *testing.T) (certificate []byte, hash string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	require.NoError(t, err)
	key, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	sum := sha256.Sum256(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "sha256:" + hex.EncodeToString(sum[:])
}

func TestDiscover(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	discover := func(c spotv1alpha1.KubeadmJoinConfig) (nodejoin.Cluster, error) {
		return nodejoin.Discover(ctx, api, "default", c)
	}
	const token, otherHash = "abcdef.0123456789abcdef", "sha256:abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd"

	_, err := discover(spotv1alpha1.KubeadmJoinConfig{})
	require.ErrorContains(t, err, "there is no ConfigMap kube-public/cluster-info, so this cluster was not made by kubeadm")

	certificate, hash := rootCertificate(t)
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data: map[string]string{"kubeconfig": fmt.Sprintf(
			"apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://control.example.com:6443\n    certificate-authority-data: %s\n",
			base64.StdEncoding.EncodeToString(certificate))},
	}
	create(t, info)
	found, err := discover(spotv1alpha1.KubeadmJoinConfig{})
	require.NoError(t, err)
	assert.Equal(t, nodejoin.Cluster{Endpoint: "control.example.com:6443", CACertHash: hash}, found)

	secret(t, "all", map[string]string{"token": token + "\n", "ca-cert-hash": otherHash, "control-plane-endpoint": "[fd00::1]:6443"})
	found, err = discover(spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: "all"})
	require.NoError(t, err)
	assert.Equal(t, nodejoin.Cluster{Endpoint: "[fd00::1]:6443", CACertHash: otherHash, Token: token}, found)

	found, err = discover(spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: "all", ControlPlaneEndpoint: "10.0.0.9:443", CACertHash: hash})
	require.NoError(t, err)
	assert.Equal(t, nodejoin.Cluster{Endpoint: "10.0.0.9:443", CACertHash: hash, Token: token}, found, "what the SpotInstanceVM says counts")

	secret(t, "token-only", map[string]string{"token": token})
	found, err = discover(spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: "token-only"})
	require.NoError(t, err)
	assert.Equal(t, nodejoin.Cluster{Endpoint: "control.example.com:6443", CACertHash: hash, Token: token}, found)

	for name, bad := range map[string]struct {
		data map[string]string
		want string
	}{
		"no-token":     {map[string]string{"ca-cert-hash": otherHash}, "key token of Secret no-token is missing or not of the form"},
		"bad-hash":     {map[string]string{"token": token, "ca-cert-hash": "abc"}, "key ca-cert-hash of Secret bad-hash is not sha256:"},
		"bad-endpoint": {map[string]string{"token": token, "control-plane-endpoint": "https://a:1"}, "key control-plane-endpoint of Secret bad-endpoint is not host:port"},
	} {
		secret(t, name, bad.data)
		_, err := discover(spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: name})
		require.ErrorContains(t, err, "spec.kubeadmJoinConfig.tokenSecretRef: "+bad.want)
		assert.NotContains(t, err.Error(), "0123456789abcdef.")
	}
	_, err = discover(spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: "absent"})
	require.ErrorContains(t, err, "there is no Secret absent in namespace default: create it with the keys token, ca-cert-hash and control-plane-endpoint")

	info.Data["kubeconfig"] = "apiVersion: v1\nkind: Config\n"
	require.NoError(t, api.Update(ctx, info))
	_, err = discover(spotv1alpha1.KubeadmJoinConfig{})
	require.ErrorContains(t, err, "it names no cluster")
}
