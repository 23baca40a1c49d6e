package manager

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	trainingjobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/trainingjob"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// apiServer counts what it is asked.
type apiServer struct{ asked atomic.Int32 }

func (a *apiServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.asked.Add(1)
	http.Error(w, "no", http.StatusForbidden)
}

// shown is a certificate by which a client shows itself, and in PEM: it is its own authority.
func shown(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}

// serveWebhooks with a file of client authorities, and returns their address.
func serveWebhooks(t *testing.T, api *apiServer, clientCA string) string {
	t.Helper()
	registry := ctrlmetrics.Registry
	ctrlmetrics.Registry = prometheus.NewRegistry()
	t.Cleanup(func() { ctrlmetrics.Registry = registry })
	folder := t.TempDir()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600))
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	scheme, err := newScheme()
	require.NoError(t, err)
	address := process.FreePort(t, process.AnyPort)
	host, portText, err := net.SplitHostPort(address)
	require.NoError(t, err)
	port, err := strconv.Atoi(portText)
	require.NoError(t, err)
	w, err := newWebhooks(webhookOptions{certMode: certificateFiles, certDir: folder, clientCA: clientCA, host: host, port: port},
		build.Settings{}, &rest.Config{Host: server.URL}, scheme)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return w.server.StartedChecker()(nil) == nil }, time.Minute, 10*time.Millisecond)
	return address
}

// An API server that shows a certificate of another authority is one that is not known, and no one whom the webhooks turn away.
func TestTheAPIServerIsKnownByItsCertificate(t *testing.T) {
	api := &apiServer{}
	certificate, authority := shown(t)
	another, anotherAuthority := shown(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	hold := func(text []byte) { require.NoError(t, os.WriteFile(file, text, 0o600)) }
	hold(authority)
	address := serveWebhooks(t, api, file)

	job := builders.TrainingJob("job").Claim("data").ToCreate()
	job.TypeMeta = metav1.TypeMeta{APIVersion: mlv1.GroupVersion.String(), Kind: "TrainingJob"}
	object, err := json.Marshal(job)
	require.NoError(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: "default", Name: job.Name, Object: runtime.RawExtension{Raw: object},
		},
	})
	require.NoError(t, err)
	// known says whether something was looked up.
	known := func(certificate *tls.Certificate) bool {
		t.Helper()
		config := &tls.Config{InsecureSkipVerify: true}
		if certificate != nil { // as client-go does, whichever authorities the server names
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		before := api.asked.Load()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+trainingjobwebhook.ValidatingPath, bytes.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		answer, err := transport.RoundTrip(request)
		require.NoError(t, err)
		defer answer.Body.Close()
		var got admissionv1.AdmissionReview
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&got))
		require.NotNil(t, got.Response)
		assert.True(t, got.Response.Allowed, "%v", got.Response.Result)
		return api.asked.Load() > before
	}
	assert.True(t, known(&certificate))
	assert.False(t, known(&another))
	assert.False(t, known(nil))
	forged := another
	forged.Certificate = [][]byte{another.Certificate[0], certificate.Certificate[0]}
	assert.False(t, known(&forged), "what comes behind its own certificate needs no key")

	hold(anotherAuthority)
	assert.True(t, known(&another), "the file is read again")
	assert.False(t, known(&certificate))
	hold([]byte("spoilt"))
	assert.True(t, known(&another), "until there are others")
	require.NoError(t, os.Remove(file))
	assert.True(t, known(&another))
	assert.False(t, known(&certificate))
	hold(slices.Concat(authority, anotherAuthority))
	assert.True(t, known(&another))
	assert.True(t, known(&certificate))
}
