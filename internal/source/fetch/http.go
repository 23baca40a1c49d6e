package fetch

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// roots are the authorities that may sign a server's certificate: those of the system, and the one of the Secret. Nil: only the former.
func (a *attempt) roots(field string) (*x509.CertPool, error) {
	ca := a.secret[keyCA]
	if ca == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return nil, problem(reasons.SourceAccessDenied, "%s.secretRef: %s of Secret %s holds no certificate: put one there in PEM", field, keyCA, a.Source.Secret())
	}
	return pool, nil
}

// transport speaks HTTPS, also by way of the proxy of the environment.
func (a *attempt) transport(field string) (*http.Transport, error) {
	pool, err := a.roots(field)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// encrypted sends no request without encryption.
type encrypted struct{ inner *http.Transport }

// RoundTrip implements http.RoundTripper.
func (e encrypted) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, errPlain
	}
	return e.inner.RoundTrip(request)
}

// answers makes an error of each answer that is none to go on with.
type answers struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := a.inner.RoundTrip(request)
	if err != nil || answer.StatusCode < http.StatusBadRequest {
		return answer, err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<10)
	_ = answer.Body.Close()
	return nil, &badStatus{answer.StatusCode}
}

type badStatus struct{ code int }

func (b *badStatus) Error() string { return fmt.Sprintf("status %d", b.code) }

// maxRedirects are followed of one request.
const maxRedirects = 10

// onward refuses to go on to a place that is not encrypted, or where there is no end. Credentials do not go to another host.
func (s server) onward(next *http.Request, via []*http.Request) error {
	switch {
	case next.URL.Scheme != "https":
		return problem(reasons.SourceInvalid, "%s: %s redirects to %s, which is not encrypted: correct the %s", s.field(), s.host, next.URL.Host, s.address)
	case len(via) >= maxRedirects:
		return problem(reasons.SourceInvalid, "%s: %s redirects more than %d times: correct the %s", s.field(), s.host, maxRedirects, s.address)
	}
	for _, before := range via {
		if before.URL.Host != next.URL.Host {
			next.Header.Del("Authorization")
		}
	}
	return nil
}

// staying is onward, and refuses other hosts.
func (s server) staying(next *http.Request, via []*http.Request) error {
	if from := via[0].URL.Host; next.URL.Host != from {
		return problem(reasons.SourceInvalid, "%s: %s redirects to another host, %s: write its URL", s.field(), s.host, next.URL.Host)
	}
	return s.onward(next, via)
}
