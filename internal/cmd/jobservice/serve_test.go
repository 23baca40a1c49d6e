package jobservice

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/otlp"
)

// writeCertificate of 127.0.0.1 and its key into files.
func writeCertificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
		return path
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(certificate)
	require.NoError(t, err)
	pool.AddCert(parsed)
	return write("tls.crt", "CERTIFICATE", certificate), write("tls.key", "PRIVATE KEY", private), pool
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// The kubelet does not know by which protocol the REST interface is served.
func TestHealthIsToldByPlainHTTPBesideAnInterfaceByTLS(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	certFile, keyFile, pool := writeCertificate(t)
	address, metricsAddress := freeAddress(t), freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	command := New()
	command.SetArgs([]string{
		"--kubernetes=false", "--data-dir=" + t.TempDir(), "--bind-address=" + address, "--metrics-bind-address=" + metricsAddress,
		"--tls-cert-file=" + certFile, "--tls-key-file=" + keyFile,
	})
	command.SetOut(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	body := "" // of the last answer
	get := func(url string) int {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		body = string(text)
		return response.StatusCode
	}
	require.Eventually(t, func() bool { return get("http://"+metricsAddress+"/api/v1/health/ready") == http.StatusOK }, time.Minute, 20*time.Millisecond)
	assert.Equal(t, http.StatusOK, get("http://"+metricsAddress+"/api/v1/health/live"))
	assert.Equal(t, http.StatusOK, get("http://"+metricsAddress+"/metrics"))
	assert.Contains(t, body, "\naijob_service_certificate_expiry_timestamp_seconds ", "of the certificate in use")
	assert.Equal(t, http.StatusNotFound, get("http://"+metricsAddress+"/api/v1/jobs/"), "nothing else is served there")
	assert.Equal(t, http.StatusOK, get("https://"+address+"/api/v1/health/ready"))
}

func TestARequestGivesATrace(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	receiver := otlp.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	address, folder := freeAddress(t), t.TempDir()
	secret, err := keepSecret(folder)
	require.NoError(t, err)
	token, err := sign(secret, trialClaims, time.Hour)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	command := New()
	command.SetArgs([]string{"--kubernetes=false", "--data-dir=" + folder, "--bind-address=" + address})
	command.SetOut(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	defer stop()
	send := func(method, path, body string) int {
		request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	require.Eventually(t, func() bool { return send(http.MethodGet, healthPath+"ready", "") == http.StatusOK }, time.Minute, 20*time.Millisecond)
	require.Equal(t, http.StatusCreated, send(http.MethodPost, "/api/v1/jobs/", `{"job_type": "inference"}`))
	require.Equal(t, http.StatusOK, send(http.MethodPost, "/api/v1/tasks/lease", `{"queue": "inference", "worker_id": "w"}`))
	stop()
	require.NoError(t, <-ended)

	spans := receiver.Spans()
	assert.NotContains(t, spans, "GET "+healthPath+"ready", "probes are not traced")
	for request, inside := range map[string]string{"POST /api/v1/jobs/": "store submit", "POST /api/v1/tasks/lease": "store lease"} {
		require.Contains(t, spans, request)
		require.Contains(t, spans, inside)
		assert.Equal(t, spans[request].ID, spans[inside].Parent)
		assert.Equal(t, "job-service", spans[request].Service)
	}
}
