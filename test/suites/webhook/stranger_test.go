package webhook_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/spot"
	trainingjobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/trainingjob"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// curious names a claim that does not exist.
func curious(ns string) *mlv1.TrainingJob {
	return builders.TrainingJob("curious").Claim("absent").Namespace(ns).ToCreate()
}

const absence = `there is no PersistentVolumeClaim "absent"`

// A pod that reaches the webhooks may call itself whatever it likes: it is told nothing that is not in what it sent.
func TestAStrangerLearnsNothing(t *testing.T) {
	for mode, c := range map[string]struct {
		install func(*testing.T) []string
		looks   bool // for the API server
	}{
		"self": {func(t *testing.T) []string {
			t.Cleanup(func() { forgetCertificate(t) })
			installBare(t)
			return []string{"--webhook-cert-mode=self", "--webhook-cert-hosts=127.0.0.1"}
		}, true},
		"files, without a certificate of the API server": {func(t *testing.T) []string {
			return []string{"--webhook-cert-mode=files", "--webhook-cert-dir=" + install(t).LocalServingCertDir}
		}, false},
	} {
		t.Run(mode, func(t *testing.T) {
			m := startManager(t, c.install(t)...)
			eventually(t, "it is ready", m.ready)
			callAt(t, m.webhook)
			ns := namespace(t)
			awaitWebhooks(t, ns)

			said, asUser := user(t)
			require.NoError(t, asUser.Create(t.Context(), curious(ns), client.DryRunAll))
			assert.Equal(t, c.looks, strings.Contains(strings.Join(said(), "\n"), absence))
			for _, path := range []string{"", "/", "/guess"} {
				response := post(t, m.webhook, trainingjobwebhook.ValidatingPath+path, curious(ns))
				assert.True(t, response.Allowed)
				assert.Empty(t, response.Warnings, "at %q", path)
				response = post(t, m.webhook, spotwebhook.JobPath+path, builders.SpotInstanceJob("curious").Namespace(ns).On("absent").ToCreate())
				assert.True(t, response.Allowed)
				assert.Empty(t, response.Warnings, "at %q", path)
			}
		})
	}
}

// A user who may create jobs, and see nothing else, is told nothing else.
func TestAUserIsToldOnlyWhatTheUserMaySee(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	alice := as(t, "alice")
	eventually(t, "alice may create jobs", func() bool {
		return alice.Create(t.Context(), builders.TrainingJob("probe").Namespace(ns).ToCreate(), client.DryRunAll) == nil
	})
	heard := &warnings{}
	config := rest.CopyConfig(restConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	config.WarningHandler = heard
	listening, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, listening.Create(t.Context(), curious(ns), client.DryRunAll))
	assert.Empty(t, heard.take())

	said, asAdministrator := user(t)
	require.NoError(t, asAdministrator.Create(t.Context(), curious(ns), client.DryRunAll))
	assert.Contains(t, strings.Join(said(), "\n"), absence)
}

// post sends an AdmissionReview as anyone can who reaches the port, in the name of an administrator.
func post(t *testing.T, port int, path string, sent client.Object) *admissionv1.AdmissionResponse {
	t.Helper()
	kind, err := apiutil.GVKForObject(sent, scheme)
	require.NoError(t, err)
	sent.GetObjectKind().SetGroupVersionKind(kind)
	object, err := json.Marshal(sent)
	require.NoError(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: sent.GetNamespace(), Name: sent.GetName(), Object: runtime.RawExtension{Raw: object},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}},
		},
	})
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address(port)+path, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	var got admissionv1.AdmissionReview
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&got))
	require.NotNil(t, got.Response)
	return got.Response
}
