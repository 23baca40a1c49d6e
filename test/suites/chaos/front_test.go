package chaos

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// What befalls the webhooks. Each is counted when the API server has met it.
const (
	webhooksRefuse = "webhooks that refuse connections"
	webhooksHang   = "webhooks that hang until the API server gives up"
	webhooksFail   = "webhooks that answer 500"
)

var webhookFaults = []string{webhooksRefuse, webhooksHang, webhooksFail}

// front is between the API server and the webhooks of the manager. It passes connections on as they are. When webhooks are to hang or to fail,
// it answers itself, with the manager's certificate.
type front struct {
	address string // by which the API server calls
	manager string // where the manager listens
	faults  *tally
	api     kubernetes.Interface
	server  *http.Server // that hangs and fails
	taken   *taken       // its connections

	fault   atomic.Value // of the server, the last one that was injected
	hanging atomic.Int64 // calls

	mu       sync.Mutex
	answers  bool // by itself
	closed   bool // to connections
	listener net.Listener
	pairs    map[net.Conn]net.Conn // of the API server, with those to the manager
	running  sync.WaitGroup
	stop     context.CancelFunc // no more faults
	injects  sync.WaitGroup
}

func newFront(t *testing.T, api *rest.Config, address string, faults *tally) *front {
	t.Helper()
	f := &front{
		address: address, manager: process.FreePort(t, process.AnyPort), faults: faults, pairs: map[net.Conn]net.Conn{}, stop: func() {},
		taken: &taken{connections: make(chan net.Conn), closed: make(chan struct{})},
	}
	var err error
	f.api, err = kubernetes.NewForConfig(api)
	require.NoError(t, err)
	f.fault.Store(webhooksFail)
	f.server = &http.Server{
		Handler: http.HandlerFunc(f.answer), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig:    &tls.Config{GetCertificate: f.certificate, MinVersion: tls.VersionTLS12},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 as the manager does
	}
	f.server.SetKeepAlivesEnabled(false)
	f.running.Go(func() { _ = f.server.ServeTLS(f.taken, "", "") })
	require.NoError(t, f.listen())
	t.Cleanup(func() {
		f.end()
		f.close()
		_ = f.server.Close()
		f.running.Wait()
	})
	return f
}

// begin has the seed decide from now on what befalls the webhooks, and when.
func (f *front) begin(seed uint64) {
	f.end()
	ctx, stop := context.WithCancel(context.Background())
	f.mu.Lock()
	f.stop = stop
	f.mu.Unlock()
	random := rand.New(rand.NewPCG(seed, 5))
	f.injects.Go(func() {
		for sleep(ctx, 500*time.Millisecond+time.Duration(random.Int64N(int64(2*time.Second)))) {
			// What hangs takes the time of the user who waits.
			fault := []string{webhooksRefuse, webhooksRefuse, webhooksFail, webhooksFail, webhooksHang}[random.IntN(5)]
			f.inject(ctx, fault, time.Second+time.Duration(random.Int64N(int64(2*time.Second))))
		}
	})
}

// end lets all connections pass. What hangs does so until the API server gives up.
func (f *front) end() {
	f.mu.Lock()
	stop := f.stop
	f.mu.Unlock()
	stop()
	f.injects.Wait()
}

// inject lets the webhooks be away for a while.
func (f *front) inject(ctx context.Context, fault string, length time.Duration) {
	if fault != webhooksRefuse {
		f.fault.Store(fault)
		f.setAnswers(true)
		sleep(ctx, length)
		f.setAnswers(false)
		return
	}
	for f.hanging.Load() > 0 && sleep(ctx, 100*time.Millisecond) { // which counts as failed once it ends
	}
	before, err := f.failedOpen()
	f.close()
	sleep(ctx, length)
	after, failed := f.failedOpen()
	if err == nil && failed == nil && after > before {
		f.faults.addN(webhooksRefuse, after-before)
	}
	for f.listen() != nil { // its port was taken
		time.Sleep(100 * time.Millisecond)
	}
}

func (f *front) setAnswers(to bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = to
	f.cut()
}

// cut ends the connections to the manager, so that the API server makes new ones. The lock is held.
func (f *front) cut() {
	for from, to := range f.pairs {
		_, _ = from.Close(), to.Close()
	}
}

func (f *front) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	_ = f.listener.Close()
	f.cut()
}

func (f *front) listen() error {
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener, f.closed = listener, false
	f.running.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			f.running.Go(func() { f.take(connection) })
		}
	})
	return nil
}

// take has a connection answered here, or passes it on.
func (f *front) take(connection net.Conn) {
	f.mu.Lock()
	answers := f.answers
	f.mu.Unlock()
	if answers {
		f.taken.give(connection)
		return
	}
	defer connection.Close()
	manager, err := net.Dial("tcp", f.manager)
	if err != nil { // it is just being started
		return
	}
	defer manager.Close()
	f.mu.Lock()
	late := f.answers || f.closed
	if !late {
		f.pairs[connection] = manager
	}
	f.mu.Unlock()
	if late {
		return
	}
	var passing sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
	}
	passing.Go(func() { pass(manager, connection) })
	passing.Go(func() { pass(connection, manager) })
	passing.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pairs, connection)
}

// answer is that of webhooks that hang or fail.
func (f *front) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	fault := f.fault.Load().(string)
	if fault == webhooksHang {
		f.hanging.Add(1)
		<-r.Context().Done()
		f.hanging.Add(-1)
	}
	f.faults.add(fault)
	w.WriteHeader(http.StatusInternalServerError)
}

// certificate is the manager's.
func (f *front) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	secret, err := f.api.CoreV1().Secrets(managerNamespace).Get(hello.Context(), "spot-training-operator-webhook-certificate", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	return &pair, err
}

// failedOpen is how many calls of webhooks have failed, whose objects the API server took without.
func (f *front) failedOpen() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text, err := f.api.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	sums, err := sumsIn(text)
	return int(sums["apiserver_admission_webhook_fail_open_count"]), err
}

// taken is a listener of connections that another one has accepted.
type taken struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (l *taken) give(connection net.Conn) {
	select {
	case l.connections <- connection:
	case <-l.closed:
		_ = connection.Close()
	}
}

func (l *taken) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *taken) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *taken) Addr() net.Addr { return &net.TCPAddr{} }
