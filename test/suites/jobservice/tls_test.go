package jobservice_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dcnlab/spot-training-operator/internal/certificate"
	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

var (
	certificateSecret = types.NamespacedName{Namespace: "default", Name: "job-service-certificate"}
	authorities       = types.NamespacedName{Namespace: "default", Name: "job-service-ca"}
)

// keep runs what keeps the certificate and publishes its authorities, as the manager does, until the test ends or stop is called.
func (c *cluster) keep(clock *clocktesting.FakeClock, validity time.Duration) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, one := range []interface{ Start(context.Context) error }{
		&certificate.Rotator{
			Client: c, Clock: clock, Secret: certificateSecret, Hosts: []string{"127.0.0.1"}, Validity: validity, Lead: 700 * time.Hour,
		},
		&certificate.Publisher{Client: c, Clock: clock, Secret: certificateSecret, ConfigMap: authorities},
	} {
		running.Go(func() { assert.NoError(c.t, one.Start(ctx)) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	c.t.Cleanup(stop)
	return stop
}

// mount writes files as the kubelet does: all at once, by a link.
func mount(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	data, err := os.MkdirTemp(folder, "..")
	require.NoError(t, err)
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(data, name), text, 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Base(data), data+"_tmp"))
	require.NoError(t, os.Rename(data+"_tmp", filepath.Join(folder, "..data")))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); !os.IsExist(err) {
			require.NoError(t, err)
		}
	}
}

// trusting is a client that knows the authorities that are published, and no others.
func (c *cluster) trusting() *http.Client {
	c.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(c.published()))
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (c *cluster) published() string {
	c.t.Helper()
	var published corev1.ConfigMap
	require.NoError(c.t, c.Get(c.t.Context(), authorities, &published))
	return published.Data["ca.crt"]
}

// The manager makes and renews the certificate, the kubelet mounts it, and the service and its clients take up what is new without a restart.
func TestTheServiceIsReachedByHTTPSThroughARenewal(t *testing.T) {
	c := startCluster(t)
	clock := clocktesting.NewFakeClock(time.Now())
	stop := c.keep(clock, 900*time.Hour)
	var secret corev1.Secret
	await := func(what string, met func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			clock.Step(time.Second)
			return c.Get(t.Context(), certificateSecret, &secret) == nil && met()
		}, patience, 20*time.Millisecond, what)
	}
	isPublished := func() bool {
		var published corev1.ConfigMap
		return c.Get(t.Context(), authorities, &published) == nil && published.Data["ca.crt"] == string(secret.Data["ca.crt"])
	}
	await("the authority is published", isPublished)

	served, trusted := t.TempDir(), t.TempDir()
	mountAll := func() {
		mount(t, served, map[string][]byte{"tls.crt": secret.Data["tls.crt"], "tls.key": secret.Data["tls.key"]})
		mount(t, trusted, map[string][]byte{"ca.crt": []byte(c.published())})
	}
	mountAll()
	early := c.trusting()
	s := jobservice.StartTLS(t, early, c.program, nil, "--data-dir="+t.TempDir(), "--kubernetes=false",
		"--tls-cert-file="+filepath.Join(served, "tls.crt"), "--tls-key-file="+filepath.Join(served, "tls.key"))
	s.Token = s.PrintedToken()
	worker := startWorkerIn(t, []string{"JOB_SERVICE_CA_FILE=" + filepath.Join(trusted, "ca.crt")}, s, "pool", "-m", "pool_worker")
	works := func() {
		t.Helper()
		s.AwaitStatus(s.Submit(task("simulation", map[string]any{"duration_seconds": 1})), "succeeded")
	}
	works()

	t.Run("others are refused", func(t *testing.T) {
		address := strings.TrimPrefix(s.URL, "https://")
		plain, err := http.Get("http://" + address + "/api/v1/jobs/") //nolint:noctx // a client that knows no better
		require.NoError(t, err)
		defer plain.Body.Close()
		text, err := io.ReadAll(plain.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, plain.StatusCode)
		assert.Contains(t, string(text), "Client sent an HTTP request to an HTTPS server")

		_, err = http.Get(s.URL + "/api/v1/health/live") //nolint:noctx // there is no answer
		require.ErrorContains(t, err, "certificate signed by unknown authority")
		old := early.Transport.(*http.Transport).TLSClientConfig.Clone()
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		_, err = (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp", address)
		require.ErrorContains(t, err, "protocol version not supported")
	})

	// The last third has begun. What is issued begins at the real time, so that it has to last longer to be good at the test's.
	stop()
	clock.Step(610 * time.Hour)
	c.keep(clock, 90_000*time.Hour)
	first := secret.Data["tls.crt"]
	await("the next authority is published", func() bool { return len(secret.Data["next.crt"]) > 0 && isPublished() })
	assert.Equal(t, first, secret.Data["tls.crt"], "what clients do not know yet is not served")
	mountAll()
	in := c.trusting()
	clock.Step(100 * time.Hour)
	await("the next certificate is to be served", func() bool { return !bytes.Equal(secret.Data["tls.crt"], first) })
	assert.Empty(t, secret.Data["next.crt"])
	leaf := func(client *http.Client) (string, error) {
		client.CloseIdleConnections()
		answer, err := client.Get(s.URL + "/api/v1/health/live") //nolint:noctx // the test's time is limited
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		return fmt.Sprint(answer.TLS.PeerCertificates[0].SerialNumber), nil
	}
	before, err := leaf(in)
	require.NoError(t, err, "the one before is trusted until then")
	mountAll()
	require.Eventually(t, func() bool {
		now, err := leaf(in)
		require.NoError(t, err, "who has read the authorities since the renewal began trusts both")
		return now != before
	}, patience, 20*time.Millisecond, "the service serves the new certificate")
	_, err = leaf(early)
	require.ErrorContains(t, err, "certificate signed by unknown authority")

	s.Client = in
	works()
	worker.terminate()
	startWorkerIn(t, []string{"JOB_SERVICE_CA_FILE=" + filepath.Join(trusted, "ca.crt")}, s, "pool", "-m", "pool_worker")
	works()
}

// One variable restores the former way, as it can be set where arguments cannot.
func TestPlainHTTPIsServedWhereItIsAskedFor(t *testing.T) {
	s := jobservice.Start(t, operator.Program(t), []string{"JOB_SERVICE_PLAIN_HTTP=true"}, "--data-dir="+t.TempDir(), "--kubernetes=false",
		"--tls-cert-file=not-read", "--tls-key-file=not-read")
	s.Token = s.PrintedToken()
	s.Submit(pooled())
}
