// Package pki makes the certificates of the cluster: authorities that are kept, and certificates that are issued again at every
// start.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
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

// LoadOrCreate reads the authority name from dir (name.crt and name.key), or makes it and writes it there.
func LoadOrCreate(dir, name string) (*Authority, error) {
	crtPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if _, err := os.Stat(keyPath); errors.Is(err, fs.ErrNotExist) {
		if err := createAuthority(crtPath, keyPath, name); err != nil {
			return nil, fmt.Errorf("make authority %s: %w", name, err)
		}
	}
	certificates, err := cert.CertsFromFile(crtPath)
	if err != nil {
		return nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	key, err := keyutil.PrivateKeyFromFile(keyPath)
	if err != nil {
		return nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("load authority %s: %s does not hold a signing key", name, keyPath)
	}
	return &Authority{certificate: certificates[0], key: signer}, nil
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return encode(cert.CertificateBlockType, a.certificate.Raw) }

func createAuthority(crtPath, keyPath, name string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name, NotBefore: time.Now().Add(-clockSkew)}, key)
	if err != nil {
		return err
	}
	// The key last: its presence means that the pair is complete.
	if err := cert.WriteCert(crtPath, encode(cert.CertificateBlockType, certificate.Raw)); err != nil {
		return err
	}
	return writeKey(keyPath, key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// writeKey writes the private key atomically, readable by its owner only.
func writeKey(path string, key *ecdsa.PrivateKey) error {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(path+".partial", text); err != nil {
		return err
	}
	return os.Rename(path+".partial", path)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
