//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

// machines are the computers behind the instances of a fake Compute Engine: for each instance that runs, the local cluster
// switches a machine on, whose metadata server is that of the instance. They join by the real kubeadm.
type machines struct {
	*fakegce.Server

	t       *testing.T
	command string
	node    string // the address of the cluster's own node
	images  []string

	mutex     sync.Mutex
	addresses map[string]string
	metadata  map[string]*http.Server
	// switches lets one command at a time be at work on a machine; several machines may start at once.
	switches map[string]*sync.Mutex
	busy     sync.WaitGroup
}

// startCloud starts a fake Compute Engine with machines, which hold images. The Compute Engine listens where pods of the
// cluster reach it. All machines and their nodes are gone after the test.
func startCloud(t *testing.T, opts fakegce.Options, images ...string) *machines {
	t.Helper()
	command := os.Getenv("LOCALCLUSTER")
	if command == "" {
		t.Skip("machines that join are made by the local cluster only: make e2e without KUBECONFIG")
	}
	m := &machines{
		t: t, command: command, images: images,
		addresses: map[string]string{}, metadata: map[string]*http.Server{}, switches: map[string]*sync.Mutex{},
	}
	m.node = hostAddress(t)
	opts.Address = func(name string) (string, string) { return m.address(name), "" }
	opts.Hooks = fakegce.Hooks{
		OnRunning: func(instance fakegce.Instance) { m.turn(instance.Name, func() { m.boot(instance) }) },
		OnGone:    func(instance fakegce.Instance) { m.turn(instance.Name, func() { m.off(instance.Name) }) },
	}
	if opts.Listen == "" {
		opts.Listen = m.node + ":0"
	}
	m.Server = fakegce.Start(t, opts)
	t.Cleanup(m.clean)
	return m
}

// hostAddress is where the node, and so this test, can be reached by machines and pods.
func hostAddress(t *testing.T) string {
	t.Helper()
	var nodes corev1.NodeList
	require.NoError(t, cluster.List(t.Context(), &nodes))
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && net.ParseIP(address.Address) != nil && bindable(address.Address) {
				return address.Address
			}
		}
	}
	t.Fatal("no node has an address of this machine")
	return ""
}

func bindable(address string) bool {
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// address of an instance: the next one after that of the node.
func (m *machines) address(name string) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.addresses[name] == "" {
		address := netip.MustParseAddr(m.node)
		for range len(m.addresses) + 1 {
			address = address.Next()
		}
		m.addresses[name] = address.String()
		m.switches[name] = &sync.Mutex{}
	}
	return m.addresses[name]
}

// turn has something happen to a machine, after what happens to it already.
func (m *machines) turn(name string, what func()) {
	m.mutex.Lock()
	one := m.switches[name]
	m.mutex.Unlock()
	before := make(chan struct{})
	m.busy.Go(func() {
		one.Lock()
		defer one.Unlock()
		close(before)
		what()
	})
	select {
	case <-before:
	case <-time.After(time.Second): // something else happens to it
	}
}

// boot switches on the machine of an instance.
func (m *machines) boot(instance fakegce.Instance) {
	listener, err := net.Listen("tcp", m.node+":0")
	if err != nil {
		m.t.Errorf("metadata server of %s: %v", instance.Name, err)
		return
	}
	server := &http.Server{Handler: m.Metadata(instance.Name), ReadHeaderTimeout: time.Minute}
	m.mutex.Lock()
	m.metadata[instance.Name] = server
	m.mutex.Unlock()
	go func() { _ = server.Serve(listener) }()
	args := []string{"up", instance.Name, "--address", instance.InternalIP, "--metadata", listener.Addr().String()}
	for _, image := range m.images {
		args = append(args, "--image", image)
	}
	m.machine(args...)
}

// off takes the power from the machine of an instance.
func (m *machines) off(name string) {
	m.machine("down", name)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if server := m.metadata[name]; server != nil {
		_ = server.Close()
		delete(m.metadata, name)
	}
}

func (m *machines) machine(args ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.t.Context()), patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, m.command, append([]string{"machine"}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Errorf("machine %s: %v: %s", strings.Join(args, " "), err, output)
		return
	}
	if len(output) > 0 {
		m.t.Logf("%s", output)
	}
}

// clean takes all machines down and removes their nodes, which no cloud controller does here.
func (m *machines) clean() {
	m.Close() // no hook comes any more
	m.busy.Wait()
	for name := range m.addresses {
		if m.t.Failed() {
			m.t.Logf("the console of machine %s:\n%s", name, m.console(name))
		}
		m.off(name)
		_ = cluster.Delete(context.WithoutCancel(m.t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// console is what a machine has printed since it was switched on.
func (m *machines) console(name string) string {
	state := strings.TrimSuffix(os.Getenv("KUBECONFIG"), "/kubeconfig")
	text, err := os.ReadFile(fmt.Sprintf("%s/logs/machine-%s.log", state, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// provider is the operator's client of this cloud.
func (m *machines) provider() *gcp.Provider {
	m.t.Helper()
	provider, err := gcp.New(m.t.Context(), gcp.Options{
		Project: m.Project(), Credentials: m.CredentialsJSON(), Endpoint: m.URL(), UserAgent: "e2e",
	})
	require.NoError(m.t, err)
	return provider
}

// nodeBecomesReady waits until an instance is a ready node.
func nodeBecomesReady(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	eventually(t, "node "+name+" is ready", func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	return node
}
