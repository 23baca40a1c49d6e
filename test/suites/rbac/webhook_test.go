package rbac_test

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
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
	return webhookServing{host: host, port: port, certificates: certificates, authority: certificate}
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
