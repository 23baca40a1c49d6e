// Package pki makes the certificates of the cluster: authorities that are kept, and certificates that are issued again at every
// start.
package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
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

const (
	// certificateLife is how long an issued certificate is valid; that of an authority is 10 years.
	certificateLife = 365 * 24 * time.Hour
	// clockSkew is how far in the past validity begins, for clocks that are a little behind.
	clockSkew = 5 * time.Minute
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

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

// LoadOrCreate reads the authority name from dir (name.crt and name.key), or makes it and writes it there.
func LoadOrCreate(dir, name string) (*Authority, error) {
	path := filepath.Join(dir, name+".crt")
	key, err := SigningKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name, NotBefore: time.Now().Add(-clockSkew)}, key)
		if err == nil {
			err = cert.WriteCert(path, encode(certificate.Raw))
		}
		if err != nil {
			return nil, fmt.Errorf("make authority %s: %w", name, err)
		}
	}
	certificates, err := cert.CertsFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	return &Authority{certificate: certificates[0], key: key}, nil
}

// SigningKey reads a private key from a file, or makes it and writes it there, readable by its owner only.
func SigningKey(path string) (crypto.Signer, error) {
	text, _, err := keyutil.LoadOrGenerateKeyFile(path)
	if err != nil {
		return nil, err
	}
	return signer(text)
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return encode(a.certificate.Raw) }

// Issue signs a new certificate.
func (a *Authority) Issue(request Request) (Pair, error) {
	text, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return Pair{}, err
	}
	key, err := signer(text)
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
	return Pair{Certificate: encode(der), Key: text}, nil
}

// IssueFiles writes a new certificate and its key to name.crt and name.key in dir.
func (a *Authority) IssueFiles(dir, name string, request Request) error {
	pair, err := a.Issue(request)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(filepath.Join(dir, name+".key"), pair.Key); err != nil {
		return err
	}
	return cert.WriteCert(filepath.Join(dir, name+".crt"), pair.Certificate)
}

func signer(text []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, err
	}
	signing, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signing, nil
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
