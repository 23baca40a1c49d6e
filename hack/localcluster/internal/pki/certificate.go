package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Request says what a certificate is for.
type Request struct {
	// CommonName is the user name that a client certificate stands for.
	CommonName string
	// Organizations are the groups of that user.
	Organizations []string
	// Hosts are the DNS names and IP addresses of a server; a certificate with hosts is good for
	// servers, and every certificate is good for clients.
	Hosts []string
}

// Pair is a certificate and its private key as PEM.
type Pair struct{ Certificate, Key []byte }

// Issue signs a new certificate.
func (a *Authority) Issue(request Request) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: request.CommonName, Organization: request.Organizations},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(certificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(request.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range request.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", request.CommonName, err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	return Pair{Certificate: encode(cert.CertificateBlockType, der), Key: text}, err
}

// Write writes the pair to name.crt and name.key in dir.
func (p Pair) Write(dir, name string) error {
	if err := keyutil.WriteKey(filepath.Join(dir, name+".key"), p.Key); err != nil {
		return err
	}
	return cert.WriteCert(filepath.Join(dir, name+".crt"), p.Certificate)
}

// SigningKey makes sure that dir holds the key pair name.key and name.pub, with which service account
// tokens are signed and checked. It is kept, so that tokens stay valid over a restart.
func SigningKey(dir, name string) error {
	keyPath, pubPath := filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pub")
	if _, err := os.Stat(keyPath); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := cert.WriteCert(pubPath, encode(keyutil.PublicKeyBlockType, der)); err != nil {
		return err
	}
	return writeKey(keyPath, key)
}
