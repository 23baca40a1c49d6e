package webhook_test

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// manager is a replica of the real program.
type manager struct {
	command *exec.Cmd
	output  *output
	webhook int // ports
	probes  int
	ended   chan error
}

// output can be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// startManager starts a replica as the operator's ServiceAccount.
func startManager(t *testing.T, arguments ...string) *manager {
	t.Helper()
	file, kubeconfig := operator.Program(t), server.KubeconfigOf(t, operatorUser, "system:serviceaccounts")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, kubeconfig, 0o600))

	m := &manager{output: &output{}, webhook: freePort(t), probes: freePort(t), ended: make(chan error, 1)}
	m.command = exec.Command(file, append([]string{
		"manager", "--leader-elect", "--leader-election-namespace=" + operatorNamespace, "--metrics-bind-address=0",
		"--health-probe-bind-address=" + address(m.probes), "--webhook-bind-host=127.0.0.1", "--webhook-port=" + strconv.Itoa(m.webhook),
		"--training-worker-image=" + settings.WorkerImage,
	}, arguments...)...)
	m.command.Env = append(os.Environ(), "KUBECONFIG="+path, "POD_NAMESPACE="+operatorNamespace)
	m.command.Stdout, m.command.Stderr = m.output, m.output
	require.NoError(t, m.command.Start())
	go func() { m.ended <- m.command.Wait() }()
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			t.Logf("a manager's log:\n%s", m.output)
		}
	})
	return m
}

func (m *manager) stop() {
	if m.command.ProcessState != nil {
		return
	}
	_ = m.command.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-m.ended:
		m.ended <- err
	case <-time.After(patience):
		_ = m.command.Process.Kill()
	}
}

func (m *manager) ready() bool {
	response, err := http.Get("http://" + address(m.probes) + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// callAt has the API server call the webhooks at a port of this machine instead of by the Service.
func callAt(t *testing.T, port int) {
	t.Helper()
	redirect := func(config *admissionregistrationv1.WebhookClientConfig) {
		var path string
		if config.Service != nil {
			path = *config.Service.Path
		} else {
			at, err := url.Parse(*config.URL)
			require.NoError(t, err)
			path = at.Path
		}
		config.Service, config.URL = nil, ptr.To("https://"+address(port)+path)
	}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Name: configuration}, &mutating))
	for i := range mutating.Webhooks {
		redirect(&mutating.Webhooks[i].ClientConfig)
	}
	require.NoError(t, k8s.Update(t.Context(), &mutating))
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Name: configuration}, &validating))
	for i := range validating.Webhooks {
		redirect(&validating.Webhooks[i].ClientConfig)
	}
	require.NoError(t, k8s.Update(t.Context(), &validating))
}

// The first start in a new cluster: two replicas of the real program, with the permissions of config/ alone, make one
// certificate, have the API server trust it, become ready without a restart, and both serve, the leader or not.
func TestTheManagerKeepsItsOwnCertificate(t *testing.T) {
	t.Cleanup(func() { forgetCertificate(t) })
	installBare(t)
	ns := namespace(t)
	flags := []string{"--webhook-cert-mode=self", "--webhook-cert-hosts=127.0.0.1"}
	one, two := startManager(t, flags...), startManager(t, flags...)
	begin := time.Now()
	eventually(t, "both are ready", func() bool { return one.ready() && two.ready() })
	t.Logf("both replicas were ready %s after their start", time.Since(begin).Round(time.Millisecond))

	var secret corev1.Secret
	require.NoError(t, k8s.Get(t.Context(), certificateSecret, &secret))
	for _, bundle := range caBundles(t) {
		assert.Equal(t, secret.Data["ca.crt"], bundle)
	}
	eventually(t, "one of them leads", func() bool {
		var lease coordinationv1.Lease
		err := k8s.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "spot-training-operator.ml.example.com"}, &lease)
		return err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != ""
	})
	for name, replica := range map[string]*manager{"one": one, "two": two} {
		callAt(t, replica.webhook)
		awaitWebhooks(t, ns)
		job := builders.TrainingJob(name).Namespace(ns).ToCreate()
		require.NoError(t, k8s.Create(t.Context(), job))
		assert.Equal(t, settings.WorkerImage, job.Spec.Image)
	}
	eventually(t, "the controller takes up a job", func() bool {
		var job mlv1.TrainingJob
		return k8s.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "one"}, &job) == nil && len(job.Status.Conditions) > 0
	})
	for _, replica := range []*manager{one, two} {
		replica.stop()
		require.NoError(t, <-replica.ended, "it ends when it is told to, and not before")
		assert.NotContains(t, replica.output.String(), "PRIVATE KEY")
		assert.NotContains(t, replica.output.String(), "forbidden", "its permissions are enough")
	}
}

// The certificate of OLM and of cert-manager is in files, which are read again when they change.
func TestTheManagerServesTheCertificateOfFiles(t *testing.T) {
	at := install(t)
	m := startManager(t, "--webhook-cert-mode=files", "--webhook-cert-dir="+at.LocalServingCertDir)
	eventually(t, "it is ready", m.ready)
	callAt(t, m.webhook)
	awaitWebhooks(t, namespace(t))
}

// A setting that cannot work ends the manager at once with the flag and the remedy.
func TestWrongWebhookFlags(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"a mode that is none": {[]string{"--webhook-cert-mode=magic"}, `--webhook-cert-mode: "magic" is none of files, self and off`},
		"no certificate": {[]string{"--webhook-cert-mode=files", "--webhook-cert-dir=" + t.TempDir()},
			"mount the certificate's Secret there, or set --webhook-cert-mode to self or off"},
		"no namespace": {[]string{"--webhook-cert-mode=self", "--namespace="}, "--namespace: is not set, but --webhook-cert-mode=self keeps a Secret there"},
	} {
		t.Run(name, func(t *testing.T) {
			m := startManager(t, test.arguments...)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			select {
			case err := <-m.ended:
				m.ended <- err
				require.Error(t, err)
				assert.Contains(t, m.output.String(), test.want)
			case <-ctx.Done():
				require.FailNow(t, "it goes on running")
			}
		})
	}
}
