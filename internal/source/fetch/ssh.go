package fetch

import (
	"cmp"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// connectTakes bounds how long a server may take to be connected to.
const connectTakes = 30 * time.Second

// overSSH connects to a server by SSH. Its key must be a known one.
func (a *attempt) overSSH(s server, endpoint *transport.Endpoint) (transport.UploadPackSession, error) {
	if s.secret == "" {
		return nil, problem(reasons.SourceAccessDenied, "%s: %s needs credentials: name a Secret in %s.secretRef with the keys %s and %s",
			s.field(), s.host, s.source, keyIdentity, keyKnownHosts)
	}
	for _, key := range []string{keyIdentity, keyKnownHosts} {
		if a.secret[key] == "" {
			return nil, problem(reasons.SourceAccessDenied, "%s.secretRef: Secret %s has no key %s, which SSH needs: add it", s.source, s.secret, key)
		}
	}
	known, err := gitssh.NewKnownHostsDb(filepath.Join(a.Credentials, keyKnownHosts))
	if err != nil {
		return nil, problem(reasons.SourceAccessDenied, "%s.secretRef: %s of Secret %s cannot be read: put lines there as ssh-keyscan prints them",
			s.source, keyKnownHosts, s.secret)
	}
	// Files of keys end with a line break.
	identity, err := gitssh.NewPublicKeys(cmp.Or(endpoint.User, "git"), []byte(a.secret[keyIdentity]+"\n"), "")
	if err != nil {
		return nil, problem(reasons.SourceAccessDenied, "%s.secretRef: %s of Secret %s is no private key without a passphrase: put one there",
			s.source, keyIdentity, s.secret)
	}
	identity.HostKeyCallback = known.HostKeyCallback()
	address := net.JoinHostPort(endpoint.Host, strconv.Itoa(cmp.Or(endpoint.Port, gitssh.DefaultPort)))
	identity.HostKeyAlgorithms = known.HostKeyAlgorithms(address)
	session, err := gitssh.NewClient(nil).NewUploadPackSession(endpoint, limited{identity})
	if err != nil {
		return nil, s.explainSSH(err)
	}
	return session, nil
}

// limited is a login that does not wait for a connection without an end.
type limited struct{ *gitssh.PublicKeys }

// ClientConfig implements gitssh.AuthMethod.
func (l limited) ClientConfig() (*ssh.ClientConfig, error) {
	config, err := l.PublicKeys.ClientConfig()
	if err == nil {
		config.Timeout = connectTakes
	}
	return config, err
}

// explainSSH puts an error of a connection by SSH into words.
func (s server) explainSSH(err error) error {
	if wrong, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(wrong.Want) == 0 {
			return problem(reasons.SourceAccessDenied, "%s.secretRef: %s of Secret %s has no key of %s: add what ssh-keyscan prints for it, once you have compared it",
				s.source, keyKnownHosts, s.secret, s.host)
		}
		return problem(reasons.SourceAccessDenied, "%s.secretRef: the host key of %s is not the one in %s of Secret %s: "+
			"another server answers, or its key was changed: correct the Secret",
			s.source, s.host, keyKnownHosts, s.secret)
	}
	if revoked, ok := errors.AsType[*knownhosts.RevokedError](err); ok {
		return problem(reasons.SourceAccessDenied, "%s.secretRef: the host key of %s is revoked in line %d of %s of Secret %s",
			s.source, s.host, revoked.Revoked.Line, keyKnownHosts, s.secret)
	}
	if strings.Contains(err.Error(), "unable to authenticate") {
		return s.denied()
	}
	return s.explain(err)
}
