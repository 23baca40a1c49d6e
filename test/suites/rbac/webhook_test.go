package rbac_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// certModeArgument begins the argument that says where the manager has the certificate of its webhooks from.
const certModeArgument = "--webhook-cert-mode="

// webhookServing is how the API server, which cannot reach a Service here, reaches the webhooks of a manager.
type webhookServing struct {
	host, port string
	// certificates is a folder with a certificate as OLM mounts one, and authority is who signed it.
	certificates string
	authority    []byte
	// clientCA is the authority of the certificate by which the API server shows itself, and admission its configuration for that.
	clientCA, admission string
}

func newWebhookServing(t *testing.T, folder string) webhookServing {
	t.Helper()
	host, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	require.NoError(t, err)
	certificates := filepath.Join(folder, "webhook-certificates")
	require.NoError(t, os.Mkdir(certificates, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(certificates, "tls.crt"), certificate, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(certificates, "tls.key"), key, 0o600))
	w := webhookServing{host: host, port: port, certificates: certificates, authority: certificate}
	w.clientCA, w.admission = clientCertificate(t, folder)
	return w
}

// clientCertificate makes a certificate for the API server, which is its own authority, and the configuration by which the API server shows it to
// webhooks.
func clientCertificate(t *testing.T, folder string) (certificate, admission string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	write := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	certificate = write("webhook-client.crt", pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))
	kubeconfig := write("webhook-client.kubeconfig", fmt.Appendf(nil,
		"apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {client-certificate: %s, client-key: %s}\n",
		certificate, write("webhook-client.key", private)))
	configuration := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		configuration += "- name: " + plugin + "\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: " +
			kubeconfig + "}\n"
	}
	return certificate, write("admission.yaml", []byte(configuration))
}

// redirect has a webhook configuration call the address in the place of the Service. Other objects stay as they are.
func (w webhookServing) redirect(t *testing.T, object client.Object) {
	t.Helper()
	configuration, ok := object.(*unstructured.Unstructured)
	if !ok || !strings.HasSuffix(configuration.GetKind(), "WebhookConfiguration") {
		return
	}
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	require.NoError(t, err)
	for _, webhook := range webhooks {
		clientConfig := webhook.(map[string]any)["clientConfig"].(map[string]any)
		path, _, err := unstructured.NestedString(clientConfig, "service", "path")
		require.NoError(t, err)
		delete(clientConfig, "service")
		clientConfig["url"] = "https://" + net.JoinHostPort(w.host, w.port) + path
		if _, byOLM := clientConfig["caBundle"]; byOLM {
			clientConfig["caBundle"] = base64.StdEncoding.EncodeToString(w.authority)
		}
	}
	require.NoError(t, unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"))
}

// arguments are those that a manager needs beside the installation's to be reached; none when it serves no webhooks.
func (w webhookServing) arguments(installed []string) []string {
	if w.mode(installed) == "off" {
		return nil
	}
	return []string{
		"--webhook-bind-host=" + w.host, "--webhook-port=" + w.port, "--webhook-cert-hosts=" + w.host, "--webhook-cert-dir=" + w.certificates,
		"--webhook-client-ca=" + w.clientCA,
	}
}

// mode is where a manager with the arguments has its certificate from; off when it serves no webhooks.
func (w webhookServing) mode(installed []string) string {
	for _, argument := range installed {
		if mode, ok := strings.CutPrefix(argument, certModeArgument); ok {
			return mode
		}
	}
	return "off"
}

// webhookDefinition is a webhook in a ClusterServiceVersion.
type webhookDefinition struct {
	Type                    string   `json:"type"`
	GenerateName            string   `json:"generateName"`
	WebhookPath             string   `json:"webhookPath"`
	AdmissionReviewVersions []string `json:"admissionReviewVersions"`
	FailurePolicy           string   `json:"failurePolicy"`
	SideEffects             string   `json:"sideEffects"`
	Rules                   []any    `json:"rules"`
}

// configuration is what OLM makes of it.
func (d webhookDefinition) configuration() *unstructured.Unstructured {
	versions := make([]any, len(d.AdmissionReviewVersions))
	for i, version := range d.AdmissionReviewVersions {
		versions[i] = version
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1",
		"kind":       strings.TrimSuffix(d.Type, "AdmissionWebhook") + "WebhookConfiguration",
		"metadata":   map[string]any{"name": strings.ReplaceAll(d.GenerateName, ".", "-")},
		"webhooks": []any{map[string]any{
			"name": d.GenerateName, "admissionReviewVersions": versions, "failurePolicy": d.FailurePolicy, "sideEffects": d.SideEffects,
			"rules":        d.Rules,
			"clientConfig": map[string]any{"service": map[string]any{"path": d.WebhookPath}, "caBundle": ""},
		}},
	}}
}
