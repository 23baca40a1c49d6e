package stores

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy passes connections on to a server, and can be slow, silent or closed.
type Proxy struct {
	// Address that it listens at.
	Address string
	// rate in bytes per second and direction; 0 for no limit.
	rate atomic.Int64
	// silent keeps connections open and moves nothing.
	silent atomic.Bool

	target   string
	listener net.Listener
	mu       sync.Mutex
	open     map[net.Conn]bool
	moved    atomic.Int64
}

// NewProxy starts a proxy on a free port of the loopback address in front of target, a host and a port.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", AnyPort)
	require.NoError(t, err)
	return NewProxyOn(t, listener, target)
}

// NewProxyOn does so where it listens already, and closes the listener at the end of the test.
func NewProxyOn(t testing.TB, listener net.Listener, target string) *Proxy {
	t.Helper()
	p := &Proxy{Address: listener.Addr().String(), target: target, listener: listener, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// Limit sets the bytes per second that each connection may move in each direction; 0 for no limit.
func (p *Proxy) Limit(rate int64) { p.rate.Store(rate) }

// Silence makes all connections move nothing, or lets them go on.
func (p *Proxy) Silence(silent bool) { p.silent.Store(silent) }

// Moved is how many bytes have passed towards the server.
func (p *Proxy) Moved() int64 { return p.moved.Load() }

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if rate := p.rate.Load(); rate > 0 && rate < 1<<20 { // what a buffer takes looks as if it had arrived
		for _, conn := range []net.Conn{client, server} {
			_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		}
	}
	p.mu.Lock()
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pass(server, client, &p.moved) })
	both.Go(func() { p.pass(client, server, nil) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
}

func (p *Proxy) pass(to, from net.Conn, count *atomic.Int64) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		for p.silent.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		if n > 0 {
			if rate := p.rate.Load(); rate > 0 {
				time.Sleep(time.Duration(int64(n) * int64(time.Second) / rate))
			}
			if count != nil {
				count.Add(int64(n))
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
