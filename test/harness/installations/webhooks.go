package installations

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

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// certModeArgument begins the argument that says where the manager has the certificate of its webhooks from.
const certModeArgument = "--webhook-cert-mode="

// Webhooks is how the API server, which cannot reach a Service here, reaches the webhooks of a manager.
type Webhooks struct {
	// Address that the manager serves them at.
	Address string

	// certificates is a folder with a certificate as OLM mounts one, and authority is who signed it.
	certificates string
	authority    []byte
	// clientCA is the authority of the certificate by which the API server shows itself; empty when it shows none.
	clientCA string
}

// NewWebhooks chooses an address, and makes a certificate as OLM does.
func NewWebhooks(t testing.TB, folder string) *Webhooks {
	t.Helper()
	w := &Webhooks{Address: process.FreePort(t, process.AnyPort), certificates: filepath.Join(folder, "webhook-certificates")}
	certificate, key, err := cert.GenerateSelfSignedCertKey(w.host(), nil, nil)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(w.certificates, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(w.certificates, "tls.crt"), certificate, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.certificates, "tls.key"), key, 0o600))
	w.authority = certificate
	return w
}

func (w *Webhooks) host() string {
	host, _, _ := net.SplitHostPort(w.Address) // which is a listener's
	return host
}

func (w *Webhooks) port() string {
	_, port, _ := net.SplitHostPort(w.Address)
	return port
}

// ShowCertificate makes a certificate for the API server, which is its own authority, and returns the file of the configuration
// (--admission-control-config-file) by which the API server shows it to webhooks.
func (w *Webhooks) ShowCertificate(t testing.TB, folder string) (admission string) {
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
	w.clientCA = write("webhook-client.crt", pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))
	kubeconfig := write("webhook-client.kubeconfig", fmt.Appendf(nil,
		"apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user: {client-certificate: %s, client-key: %s}\n",
		w.clientCA, write("webhook-client.key", private)))
	configuration := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		configuration += "- name: " + plugin + "\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: " +
			kubeconfig + "}\n"
	}
	return write("admission.yaml", []byte(configuration))
}

// Redirect has a webhook configuration call the address in the place of the Service. Other objects stay as they are.
func (w *Webhooks) Redirect(t testing.TB, object client.Object) {
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
		clientConfig["url"] = "https://" + w.Address + path
		if _, byOLM := clientConfig["caBundle"]; byOLM {
			clientConfig["caBundle"] = base64.StdEncoding.EncodeToString(w.authority)
		}
	}
	require.NoError(t, unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"))
}

// Arguments are those that a manager needs beside the installation's to be reached; none when it serves no webhooks.
func (w *Webhooks) Arguments(installed []string) []string {
	if CertMode(installed) == "off" {
		return nil
	}
	arguments := []string{
		"--webhook-bind-host=" + w.host(), "--webhook-port=" + w.port(), "--webhook-cert-hosts=" + w.host(), "--webhook-cert-dir=" + w.certificates,
	}
	if w.clientCA != "" {
		arguments = append(arguments, "--webhook-client-ca="+w.clientCA)
	}
	return arguments
}

// CertMode is where a manager with the arguments has its certificate from; off when it serves no webhooks.
func CertMode(installed []string) string {
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
