// Package pki makes the certificates of the cluster: authorities that are kept, and certificates that
// are issued anew at every start.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

const (
	// authorityLife is how long an authority is valid; a local cluster does not live that long.
	authorityLife = 10 * 365 * 24 * time.Hour
	// certificateLife is how long an issued certificate is valid.
	certificateLife = 365 * 24 * time.Hour
	// clockSkew is how far in the past validity begins, for clocks that are a little behind.
	clockSkew = 5 * time.Minute
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
}

// LoadOrCreate reads the authority name from dir (name.crt and name.key), or makes it and writes it there.
func LoadOrCreate(dir, name string) (*Authority, error) {
	crt, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if _, err := os.Stat(key); errors.Is(err, fs.ErrNotExist) {
		if err := createAuthority(crt, key, name); err != nil {
			return nil, fmt.Errorf("make authority %s: %w", name, err)
		}
	}
	authority, err := load(crt, key)
	if err != nil {
		return nil, fmt.Errorf("load authority %s: %w", name, err)
	}
	return authority, nil
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

func createAuthority(crtPath, keyPath, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := serialNumber()
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	// The key last: its presence says that the pair is complete.
	if err := os.MkdirAll(filepath.Dir(keyPath), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(crtPath, encode("CERTIFICATE", der), 0o644); err != nil {
		return err
	}
	return writeKey(keyPath, key)
}

func load(crtPath, keyPath string) (*Authority, error) {
	crtPEM, err := os.ReadFile(crtPath)
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, err
	}
	crtBlock, _ := pem.Decode(crtPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if crtBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s or %s is not PEM", crtPath, keyPath)
	}
	certificate, err := x509.ParseCertificate(crtBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key, pem: crtPEM}, nil
}

// writeKey writes the private key so that only its owner can read it, and never half of it.
func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, encode("EC PRIVATE KEY", der), 0o600); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
