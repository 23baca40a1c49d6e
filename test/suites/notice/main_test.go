// Package notice_test times what follows the notice of a preemption: the manager and the node agent run as the programs
// that they are, against a real API server and a fake Compute Engine. The test plays the kubelet and the Job controller.
package notice_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	checkpointbackupcrd "github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

const (
	root     = "../../.."
	patience = 3 * time.Minute
	zone     = "us-central1-a"
	// machine is the spot instance that is taken back, and its node.
	machine = "spot-1"
)

// world is a cluster with one spot node.
type world struct {
	client.WithWatch

	t        *testing.T
	fake     *fakegce.Server
	provider cloud.Provider
	metadata string
	// program is the product, kubeconfig an administrator's.
	program, kubeconfig string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	api := apiserver.Start(t, apiserver.OwnCRDs, apiserver.CRDs(checkpointbackupcrd.Folder()))
	w := &world{t: t, program: operator.Program(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var err error
	w.WithWatch, err = client.NewWithWatch(api.Config(t), client.Options{Scheme: apiserver.Scheme(spotv1alpha1.AddToScheme)})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.kubeconfig, api.Kubeconfig(), 0o600))

	w.fake = fakegce.Start(t, fakegce.Options{Latency: fakegce.RealisticLatency()})
	w.provider, err = gcp.New(t.Context(), gcp.Options{
		Project: w.fake.Project(), Credentials: w.fake.CredentialsJSON(), Endpoint: w.fake.URL(), UserAgent: "test",
	})
	require.NoError(t, err)
	_, err = w.provider.Create(t.Context(), cloud.InstanceSpec{
		Name: machine, Zone: zone, RequestID: "3f0a4f4e-0000-4000-8000-000000000001", MachineType: "n1-standard-4", Spot: true,
		Image: "projects/p/global/images/family/node", DiskGB: 50,
	})
	require.NoError(t, err)
	w.await("the instance to run", func(context.Context) bool {
		instance, ok := w.fake.Instance(machine)
		return ok && instance.State == "RUNNING"
	})
	server := httptest.NewServer(w.fake.Metadata(machine))
	t.Cleanup(server.CloseClientConnections)
	w.metadata = server.URL
	return w
}

func (w *world) await(what string, met func(context.Context) bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return met(w.t.Context()) }, patience, 10*time.Millisecond, "waited for %s", what)
}

// start the product in one of its roles, until the end of the test. It is ready when its probe says so.
func (w *world) start(probe string, environment []string, args ...string) {
	w.t.Helper()
	log, err := os.Create(filepath.Join(w.t.TempDir(), "log"))
	require.NoError(w.t, err)
	command := exec.Command(w.program, args...)
	command.Env = append(append(os.Environ(), "KUBECONFIG="+w.kubeconfig), environment...)
	command.Stdout, command.Stderr = log, log
	require.NoError(w.t, command.Start())
	w.t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		assert.NoError(w.t, command.Wait())
		if text, err := os.ReadFile(log.Name()); w.t.Failed() && err == nil {
			w.t.Logf("the log of %v:\n%s", args, text)
		}
		_ = log.Close()
	})
	w.await(args[0]+" to be ready", func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, probe, nil)
		if err != nil {
			return false
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
}

// node of the instance, gracefully.
func (w *world) node() *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine, Labels: map[string]string{"cloud.google.com/gke-spot": "true"}}}
	require.NoError(w.t, w.Create(w.t.Context(), node))
	before := node.DeepCopy()
	node.Spec.Taints = nil // the one of a new node
	require.NoError(w.t, w.Patch(w.t.Context(), node, client.MergeFrom(before)))
	before = node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	require.NoError(w.t, w.Status().Patch(w.t.Context(), node, client.MergeFrom(before)))
	return node
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
