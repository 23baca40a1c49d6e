package manager

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/go-logr/logr"
	certutil "k8s.io/client-go/util/cert"
)

// clientAuthorities are those in the file of --webhook-client-ca, which is read again for each request: it may be renewed at any time.
type clientAuthorities struct {
	file string
	log  logr.Logger

	mu sync.Mutex
	// text of the file, and the authorities in the last text that had any.
	text []byte
	pool *x509.CertPool
}

// newClientAuthorities returns an error for a file without certificates.
func newClientAuthorities(file string, log logr.Logger) (*clientAuthorities, error) {
	a := &clientAuthorities{file: file, log: log}
	if err := a.read(); err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w: name a file of certificates in PEM", err)
	}
	return a, nil
}

// ask clients for a certificate, and take any. Who verified it in the handshake would turn away an API server that shows a certificate of
// another authority, and with it each request to the webhooks.
func (*clientAuthorities) ask(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }

// signed says whether the client of a request has shown a certificate that one of the authorities signed, and so has its key.
func (a *clientAuthorities) signed(request *http.Request) bool {
	if a == nil || request.TLS == nil || len(request.TLS.PeerCertificates) == 0 {
		return false
	}
	shown := request.TLS.PeerCertificates
	intermediates := x509.NewCertPool()
	for _, certificate := range shown[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots: a.current(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// current are the authorities in the file, or those that were there before it could not be read.
func (a *clientAuthorities) current() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		a.log.Error(err, "The authorities of --webhook-client-ca cannot be read; going on with those before", "file", a.file)
	}
	return a.pool
}

// read the file. A text that was read before is no error again, so that the log has it once.
func (a *clientAuthorities) read() error {
	text, err := os.ReadFile(a.file)
	if err != nil {
		if a.text == nil && a.pool != nil {
			return nil
		}
		a.text = nil
		return err
	}
	if a.text != nil && bytes.Equal(text, a.text) {
		return nil
	}
	a.text = text
	pool, err := certutil.NewPoolFromBytes(text)
	if err != nil {
		return err
	}
	a.pool = pool
	return nil
}
