package rbac_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// lease is the one of the leader.
const lease = "spot-training-operator.ml.example.com"

// buildManager builds the manager with counters that tell which code ran, and with the race detector where all tests have it.
// Without the main package among those that count, none does.
func buildManager(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "manager")
	arguments := []string{"build"}
	if os.Getenv("TEST_RACE") == "all" {
		arguments = append(arguments, "-race")
	}
	_, err := run(t, "go", append(arguments, "-cover", "-coverpkg="+module+","+module+"/controllers/...,"+module+"/internal/...", "-o", program, root)...)
	require.NoError(t, err)
	return program
}

// manager is the manager as a process, with the arguments and the environment of its Deployment.
type manager struct {
	*process

	metrics string
}

// startManager starts a manager and waits until it is ready. The name tells several apart, more is more of its environment.
func (c *cluster) startManager(program, name, counters string, more ...string) *manager {
	c.t.Helper()
	installed := installations.Arguments(&c.installation.Manager)
	metrics, probes := freeAddress(c.t), freeAddress(c.t)
	// Of two settings of a flag the last counts. The namespace is what a pod reads from its own file system.
	args := append(slices.Clone(installed),
		"--metrics-bind-address="+metrics, "--health-probe-bind-address="+probes,
		"--leader-election-namespace="+c.installation.Namespace, "--progress-interval=1s",
		"--gcp-endpoint="+c.compute.URL(), "--cloud-list-interval=1s")
	args = append(args, c.webhooks.Arguments(installed)...)
	env := []string{"KUBECONFIG=" + c.kubeconfig(c.installation.Namespace, c.installation.Account()), "GOCOVERDIR=" + counters}
	env = slices.Concat(env, c.installation.Variables(&c.installation.Manager), c.installation.Environment, more)
	m := &manager{startProcess(c.t, c.folder, name, program, env, args...), "https://" + metrics + "/metrics"}
	c.await("the manager to be ready", func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", nil)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
	c.await("the metrics server", func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", metrics)
		if err != nil {
			return false, err
		}
		return true, connection.Close()
	})
	return m
}

// end stops a manager and checks that it succeeded: without a data race, for example.
func (m *manager) end() {
	m.t.Helper()
	assert.NoError(m.t, m.stop(), "%s", m.tail(40))
}

// leader is who holds the lease.
func (c *cluster) leader() string {
	c.t.Helper()
	var held coordinationv1.Lease
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.installation.Namespace, Name: lease}, &held)
	require.NoError(c.t, client.IgnoreNotFound(err))
	return ptr.Deref(held.Spec.HolderIdentity, "")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
}

// newNamespace makes a namespace that is ready for pods.
func (c *cluster) newNamespace() string {
	c.t.Helper()
	namespace := &corev1.Namespace{}
	namespace.GenerateName = "team-"
	require.NoError(c.t, c.Create(c.t.Context(), namespace))
	c.awaitAccount(namespace.Name)
	return namespace.Name
}

// awaitAccount waits for the ServiceAccount that pods of a namespace have when they name none.
func (c *cluster) awaitAccount(namespace string) {
	c.t.Helper()
	c.await("the namespace's default ServiceAccount", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}
