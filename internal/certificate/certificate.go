// Package certificate keeps the serving certificates of the admission webhooks and of the job service where neither OLM nor cert-manager does:
// self-signed, in a Secret, renewed before they expire, and made known to the API server, or to clients in a ConfigMap.
package certificate

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
)

// caKey is the key of the Secret, and of the ConfigMap, with the certificates of all authorities that clients are to trust: the newest first,
// then the one before it, whose certificate may still be served.
const caKey = "ca.crt"

// tokenKey is the key of the Secret with the token that ends the path of webhooks: only the API server is told it.
const tokenKey = "path-token"

// formerAuthorities is how many authorities before the newest one are still trusted, beside that of the certificate which is served.
const formerAuthorities = 1

// pair is a serving certificate with the authorities to trust it by, and the token of the paths at which it is served.
type pair struct {
	serving  *tls.Certificate
	caBundle []byte
	token    string
}

// issue makes a new authority and a serving certificate for the hosts. The authority's key is thrown away: a
// reader of the Secret can sign nothing with it. before is the Secret's content so far.
func issue(hosts []string, validity time.Duration, before map[string][]byte, now time.Time) (map[string][]byte, error) {
	options := certutil.SelfSignedCertKeyOptions{Host: hosts[0], MaxAge: validity}
	for _, host := range hosts[1:] {
		if ip := net.ParseIP(host); ip != nil {
			options.AlternateIPs = append(options.AlternateIPs, ip)
		} else {
			options.AlternateDNS = append(options.AlternateDNS, host)
		}
	}
	chain, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(options)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	certificates, err := certutil.ParseCertsPEM(chain) // the serving certificate, then its authority
	if err != nil {
		return nil, fmt.Errorf("read the certificate just made: %w", err)
	}
	authorities := certificates[len(certificates)-1:]
	if former, err := certutil.ParseCertsPEM(before[caKey]); err == nil {
		served, _ := certutil.ParseCertsPEM(before[corev1.TLSCertKey]) // none, where it is spoilt
		for _, authority := range former {
			// What is served need not be of the newest: the next certificate has its authority there before it is served.
			isServed := len(served) > 0 && served[0].CheckSignatureFrom(authority) == nil
			if (isServed || len(authorities) <= formerAuthorities) && now.Before(authority.NotAfter) {
				authorities = append(authorities, authority)
			}
		}
	}
	bundle, err := certutil.EncodeCertificates(authorities...)
	if err != nil {
		return nil, fmt.Errorf("encode the authorities: %w", err)
	}
	token := before[tokenKey] // as long as the Secret is kept, so that no replica is called by another than it knows
	if len(token) == 0 {
		token = []byte(strings.ToLower(rand.Text())) // the API server takes no capitals in a path
	}
	return map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, caKey: bundle, tokenKey: token}, nil
}

// dueError is that a certificate, which is good, is to be renewed.
type dueError struct{ renewal, expiry time.Time }

func (e *dueError) Error() string {
	return fmt.Sprintf("its certificate is to be renewed from %s on, before it expires on %s", e.renewal.Format(time.RFC3339), e.expiry.Format(time.RFC3339))
}

// read returns the certificate in the data of a Secret, or why it has to be replaced. With a dueError there is one.
func read(data map[string][]byte, hosts []string, now time.Time) (*pair, error) {
	if len(data[corev1.TLSCertKey]) == 0 || len(data[corev1.TLSPrivateKeyKey]) == 0 || len(data[caKey]) == 0 {
		return nil, errors.New("it has no certificate yet")
	}
	if len(data[tokenKey]) == 0 {
		return nil, errors.New("it has no token for the paths yet")
	}
	serving, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("its certificate cannot be read: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(bytes.TrimSpace(data[caKey])) {
		return nil, errors.New("its authorities cannot be read")
	}
	for _, host := range hosts {
		_, err := serving.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: trusted, CurrentTime: now})
		if err != nil {
			return nil, fmt.Errorf("its certificate is not good for %s: %w", host, err)
		}
	}
	good := &pair{serving: &serving, caBundle: data[caKey], token: string(data[tokenKey])}
	if at := renewal(serving.Leaf); !now.Before(at) {
		return good, &dueError{renewal: at, expiry: serving.Leaf.NotAfter}
	}
	return good, nil
}

// renewal is when two thirds of a certificate's time are over.
func renewal(certificate *x509.Certificate) time.Time {
	return certificate.NotAfter.Add(-certificate.NotAfter.Sub(certificate.NotBefore) / 3)
}
