package attacks_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/networkpolicy"
)

// absence is what a job that names a claim would tell who creates it.
const absence = `there is no PersistentVolumeClaim "absent"`

// asksTheWebhooks is attack 15.
func asksTheWebhooks(c *cluster) {
	team := c.namespace(nil)
	job := func() *mlv1.TrainingJob {
		return builders.TrainingJob("curious").Claim("absent").Namespace(team).ToCreate()
	}
	for _, path := range []string{"", "/", "/guess"} {
		response := c.review("/validate-ml-example-com-v1-trainingjob"+path, job())
		assert.True(c.t, response.Allowed)
		assert.Empty(c.t, response.Warnings, "at %q", path)
	}
	// Where the webhooks know the API server they look it up, so that the question gets an answer. They do not know it where OLM keeps the
	// configurations: docs/olm.md says so.
	heard := &warned{}
	config := rest.CopyConfig(c.config)
	config.WarningHandlerWithContext = heard
	administrator := c.by(config)
	if installations.CertMode(installations.Arguments(&c.form.Manager)) == "self" {
		c.await("the warning to an administrator", func(ctx context.Context) (bool, error) {
			err := administrator.Create(ctx, job(), client.DryRunAll)
			return heard.has(absence), err
		})
	} else {
		require.NoError(c.t, administrator.Create(c.t.Context(), job(), client.DryRunAll))
		assert.False(c.t, heard.has(absence))
	}
	raysPortsAreClosed(c, team)
}

// warned are what the API server tells a user beside its answers.
type warned struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (l *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, text)
}

func (l *warned) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.texts, "\n"), text)
}

// review posts an AdmissionReview as anyone can who reaches the port, in the name of an administrator.
func (c *cluster) review(path string, job *mlv1.TrainingJob) *admissionv1.AdmissionResponse {
	c.t.Helper()
	job.TypeMeta = metav1.TypeMeta{APIVersion: mlv1.GroupVersion.String(), Kind: "TrainingJob"}
	object, err := json.Marshal(job)
	require.NoError(c.t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: job.Namespace, Name: job.Name, Object: runtime.RawExtension{Raw: object},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters"}},
		},
	})
	require.NoError(c.t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "https://"+c.webhooks.Address+path, bytes.NewReader(body))
	require.NoError(c.t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := transport.RoundTrip(request)
	require.NoError(c.t, err)
	defer answer.Body.Close()
	var got admissionv1.AdmissionReview
	require.NoError(c.t, json.NewDecoder(answer.Body).Decode(&got))
	require.NotNil(c.t, got.Response)
	return got.Response
}

// raysPortsAreClosed checks the NetworkPolicy that a Ray job gets: no network plugin enforces it here. The manager's namespace and that of
// Prometheus may read metrics, and no other namespace reaches anything.
func raysPortsAreClosed(c *cluster, team string) {
	c.create(builders.TrainingJob("ray").Namespace(team).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Framework, s.Image, s.Command = mlv1.FrameworkRay, "registry.example.com/ray:1", []string{"python", "train.py"}
	}).ToCreate())
	var workers batchv1.Job
	var policy networkingv1.NetworkPolicy
	key := client.ObjectKey{Namespace: team, Name: "ray-training"}
	c.await("the workers of a Ray job", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, &workers)
		return err == nil, client.IgnoreNotFound(err)
	})
	require.NoError(c.t, c.Get(c.t.Context(), key, &policy), "it is there before the workers")
	worker := networkpolicy.End{Namespace: team, Labels: workers.Spec.Template.Labels}
	closed := networkpolicy.Policies{&policy}
	for _, port := range []int32{8265, 10001, 6379} {
		for _, other := range []networkpolicy.End{
			{Namespace: "elsewhere", Labels: worker.Labels},
			{Namespace: "elsewhere", NamespaceLabels: map[string]string{"metrics": "enabled"}},
			{Namespace: c.form.Namespace},
			{Namespace: team},
			{Address: netip.MustParseAddr("192.0.2.7")},
		} {
			assert.False(c.t, closed.MayAllow(c.t, networkpolicy.Connection{From: other, To: worker, Port: port}), "port %d is open to %v", port, other)
		}
		assert.True(c.t, closed.Allow(c.t, networkpolicy.Connection{From: worker, To: worker, Port: port}), "port %d of the job's own", port)
	}
}
