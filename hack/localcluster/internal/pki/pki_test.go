package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

func TestAuthorityIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreate(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadOrCreate(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.PEM(), second.PEM()) {
		t.Error("the authority changed between two starts")
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: mode %v, error %v; want 0600", info.Mode(), err)
	}
}

func TestIssuedCertificates(t *testing.T) {
	authority, err := LoadOrCreate(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := LoadOrCreate(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		request Request
		trusted *Authority
		host    string
		usage   x509.ExtKeyUsage
		wantErr bool
	}{
		{name: "server by address", request: Request{CommonName: "s", Hosts: []string{"10.77.0.1", "node"}}, trusted: authority, host: "10.77.0.1", usage: x509.ExtKeyUsageServerAuth},
		{name: "server by name", request: Request{CommonName: "s", Hosts: []string{"10.77.0.1", "node"}}, trusted: authority, host: "node", usage: x509.ExtKeyUsageServerAuth},
		{name: "server by an address it lacks", request: Request{CommonName: "s", Hosts: []string{"node"}}, trusted: authority, host: "10.77.0.1", usage: x509.ExtKeyUsageServerAuth, wantErr: true},
		{name: "client", request: Request{CommonName: "c", Organizations: []string{"system:nodes"}}, trusted: authority, usage: x509.ExtKeyUsageClientAuth},
		{name: "client as server", request: Request{CommonName: "c"}, trusted: authority, usage: x509.ExtKeyUsageServerAuth, wantErr: true},
		{name: "of another authority", request: Request{CommonName: "c"}, trusted: other, usage: x509.ExtKeyUsageClientAuth, wantErr: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pair, err := authority.Issue(test.request)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
				t.Fatalf("key does not fit the certificate: %v", err)
			}
			block, _ := pem.Decode(pair.Certificate)
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(test.trusted.PEM())
			_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.usage}})
			if (err != nil) != test.wantErr {
				t.Errorf("verify: %v, want an error: %t", err, test.wantErr)
			}
		})
	}
}

func TestSigningKeyIsKept(t *testing.T) {
	dir := t.TempDir()
	read := func() []byte {
		t.Helper()
		if _, err := SigningKey(filepath.Join(dir, "service-account.key")); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, "service-account.key"))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	if !bytes.Equal(read(), read()) {
		t.Error("the key changed between two starts, which makes all tokens void")
	}
}
