package replicas

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy forwards TCP connections, and can hold them up or break them off.
type proxy struct {
	// Address that it listens on.
	Address string

	target  string
	mutex   sync.Mutex
	pass    *sync.Cond
	stalled bool
	refused bool
	open    map[net.Conn]bool
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{Address: listener.Addr().String(), target: target, open: map[net.Conn]bool{}}
	p.pass = sync.NewCond(&p.mutex)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		p.Heal()
		p.breakOff()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mutex.Lock()
	refused := p.refused
	p.open[client], p.open[server] = true, true
	p.mutex.Unlock()
	done := func() {
		_, _ = client.Close(), server.Close()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		delete(p.open, client)
		delete(p.open, server)
	}
	if refused {
		done()
		return
	}
	go func() { defer done(); p.copy(server, client) }()
	go func() { defer done(); p.copy(client, server) }()
}

func (p *proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mutex.Lock()
		for p.stalled {
			p.pass.Wait()
		}
		p.mutex.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Stall holds up what is sent, both ways, and hands it on after Heal.
func (p *proxy) Stall() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.stalled = true
}

// Cut breaks off all connections, and lets none through until Heal.
func (p *proxy) Cut() {
	p.mutex.Lock()
	p.refused = true
	p.mutex.Unlock()
	p.breakOff()
}

// Heal lets everything through again.
func (p *proxy) Heal() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.stalled, p.refused = false, false
	p.pass.Broadcast()
}

func (p *proxy) breakOff() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for connection := range p.open {
		_ = connection.Close()
	}
}
