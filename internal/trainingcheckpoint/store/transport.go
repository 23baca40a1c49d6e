package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// stallAfter is how long a store may move not a single byte before it counts as one that does not answer. There is no
// limit for a transfer as a whole: a slow network takes the time that it takes.
const stallAfter = 20 * time.Second

// completingTakes is by how much longer a store may be silent while it makes an object of what it has received.
const completingTakes = 15

var errStalled = errors.New("nothing has moved over the network for a while")

// meter sees when bytes have moved last over the connections to a store. What is written to a connection only goes into the
// kernel's buffer, which on a slow network takes its time to empty; so the kernel is asked what has arrived.
type meter struct {
	last atomic.Int64 // since started
	// completing counts uploads that the store has received and makes an object from, which takes long with a big one.
	completing atomic.Int32

	mu   sync.Mutex
	open map[*meteredConn]uint64
}

// look asks the kernel whether anything has arrived since the last look.
func (m *meter) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn, before := range m.open {
		if now := acknowledged(conn.Conn); now != before {
			m.open[conn] = now
			m.touch()
		}
	}
}

// started is a time with a monotonic reading: a clock that is set says nothing of a network.
var started = time.Now()

func (m *meter) touch() { m.last.Store(int64(time.Since(started))) }

// moved passes on what a connection has done.
func (m *meter) moved(bytes int, err error) (int, error) {
	if bytes > 0 {
		m.touch()
	}
	return bytes, err
}

// guard returns a context that ends with errStalled when nothing moves any more. The caller calls stop at the end.
func (m *meter) guard(ctx context.Context, limit time.Duration) (guarded context.Context, stop func()) {
	m.touch()
	guarded, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(limit / 10)
		defer tick.Stop()
		for {
			select {
			case <-guarded.Done():
				return
			case <-tick.C:
				allowed := limit
				if m.completing.Load() > 0 {
					allowed = completingTakes * limit
				}
				if m.look(); time.Since(started)-time.Duration(m.last.Load()) > allowed {
					cancel(errStalled)
					return
				}
			}
		}
	}()
	return guarded, func() { cancel(context.Canceled) }
}

// client makes the HTTP client of a store, which trusts the authorities; nil for those of the system.
func (m *meter) client(roots *x509.CertPool) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			c := &meteredConn{Conn: conn, meter: m}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.open[c] = 0
			return c, nil
		},
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
		// A store may hold compressed objects and hand them out otherwise than they are.
		DisableCompression: true,
		WriteBufferSize:    64 << 10,
		ReadBufferSize:     64 << 10,
	}}
}

type meteredConn struct {
	net.Conn
	meter *meter
}

func (c *meteredConn) Read(p []byte) (int, error) { return c.meter.moved(c.Conn.Read(p)) }

func (c *meteredConn) Write(p []byte) (int, error) { return c.meter.moved(c.Conn.Write(p)) }

func (c *meteredConn) Close() error {
	c.meter.mu.Lock()
	delete(c.meter.open, c)
	c.meter.mu.Unlock()
	return c.Conn.Close()
}
