package workerpool

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// trusting has a client that trusts the authorities of the job service's certificate as they are now.
type trusting struct {
	lock   sync.Mutex
	bundle string
	http   *http.Client
}

// client that trusts the authorities beside those of the system. The error is that they are not known.
func (t *trusting) client(authorities func() (bundle string, known bool)) (*http.Client, error) {
	if authorities == nil {
		return http.DefaultClient, nil
	}
	bundle, known := authorities()
	switch {
	case !known:
		return nil, errors.New("the certificate of the job service is not known yet: is there the Secret of --job-service-cert-secret?")
	case bundle == "":
		return http.DefaultClient, nil
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.http != nil && t.bundle == bundle {
		return t.http, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the system: %w", err)
	}
	pool.AppendCertsFromPEM([]byte(bundle))
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if t.http != nil {
		t.http.CloseIdleConnections()
	}
	t.http, t.bundle = &http.Client{Transport: transport}, bundle
	return t.http, nil
}
