// Package httpsserver serves HTTPS for tests, also at an address that pods of a node reach.
package httpsserver

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"
)

// Server serves HTTPS with a certificate of its own.
type Server struct {
	// URL of the server.
	URL string
	// CA is the authority of its certificate, in PEM.
	CA string
	// Transport trusts it.
	Transport http.RoundTripper
}

// Start serves until the test ends. Without a listener it listens on the loopback interface.
func Start(t testing.TB, listener net.Listener, handler http.Handler) *Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	if listener != nil {
		_ = server.Listener.Close()
		server.Listener = listener
	}
	host, _, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	bundle, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	require.NoError(t, err)
	serving, err := tls.X509KeyPair(bundle, key)
	require.NoError(t, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	pool, err := certutil.NewPoolFromBytes(bundle)
	require.NoError(t, err)
	return &Server{
		URL: server.URL, CA: string(bundle),
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	}
}

// Guarded lets only one user in.
func Guarded(user, password string, inner http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if is, with, ok := r.BasicAuth(); !ok || is != user || with != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="tests"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}
}
