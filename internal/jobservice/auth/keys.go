package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

const (
	keysFreshFor = 5 * time.Minute
	// A file is cheap to read.
	fileFreshFor = 10 * time.Second
	// betweenFetches bounds what tokens with unknown keys can make the service ask of the issuer.
	betweenFetches = 10 * time.Second
	fetchTimeout   = 10 * time.Second
	// renewalPatience is how long tokens whose key is known wait for it to be renewed.
	renewalPatience = time.Second
	maxKeysBytes    = 1 << 20
	maxRedirects    = 5
	minRSABits      = 2048
)

// keySet has the public keys of an issuer, and keeps them fresh.
type keySet struct {
	source string
	now    func() time.Time
	client http.Client

	mu   sync.Mutex
	keys []jose.JSONWebKey
	// fetched is as of when the keys are, tried when the last fetch ended.
	fetched, tried time.Time
	err            error
	// renewing is closed when the fetch ends that began at begun; nil: there is none.
	renewing chan struct{}
	begun    time.Time
}

func newKeySet(source string, now func() time.Time) *keySet {
	return &keySet{source: source, now: now, client: http.Client{Timeout: fetchTimeout, CheckRedirect: onlySecure}}
}

// checkSource says why keys must not be read from a URL: who can change the answer on its way could sign tokens.
func checkSource(source string, loopback bool) error {
	if isFile(source) {
		return nil
	}
	parsed, err := url.Parse(source)
	if err != nil {
		return fmt.Errorf("the JWKS is no URL: %w", err)
	}
	if parsed.Scheme == "https" || loopback && isLoopback(parsed.Hostname()) {
		return nil
	}
	return fmt.Errorf("the JWKS is at %s: use https, or a file", source)
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// onlySecure follows redirects to https alone.
func onlySecure(request *http.Request, via []*http.Request) error {
	if request.URL.Scheme != "https" {
		return fmt.Errorf("%s redirects to %s: use https", via[0].URL, request.URL)
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("%s redirects more than %d times", via[0].URL, maxRedirects)
	}
	return nil
}

func isFile(source string) bool { return !strings.Contains(source, "://") }

// find returns the keys that may have signed a token. Errors: *InvalidToken, ErrUnavailable while there are no keys at all.
func (s *keySet) find(ctx context.Context, id, algorithm string) (jwt.VerificationKeySet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.matching(id, algorithm)
	unknown := len(found.Keys) == 0
	if renewing := s.renew(ctx, unknown); renewing != nil {
		// Keys that cannot be renewed are good until they can: an issuer that hangs does not delay tokens whose key is known.
		patience := renewalPatience - time.Since(s.begun)
		if unknown {
			patience = fetchTimeout
		}
		waiting, stop := context.WithTimeout(ctx, patience)
		defer stop()
		s.mu.Unlock()
		select {
		case <-renewing:
		case <-waiting.Done():
		}
		s.mu.Lock()
		found = s.matching(id, algorithm)
		if s.renewing == renewing && len(found.Keys) == 0 {
			return found, fmt.Errorf("%w: the keys are still being fetched", ErrUnavailable)
		}
	}
	switch {
	case len(found.Keys) > 0:
		return found, nil
	case len(s.keys) == 0 && s.err != nil:
		return found, fmt.Errorf("%w: the keys: %w", ErrUnavailable, s.err)
	}
	return found, &InvalidToken{Reason: "no key of the issuer fits the token"}
}

// renew fetches the keys beside everything else when it is time to, and returns what is closed when they have come; nil: there is nothing
// to wait for. The mutex must be held.
func (s *keySet) renew(ctx context.Context, unknown bool) chan struct{} {
	freshFor := keysFreshFor
	if isFile(s.source) {
		freshFor = fileFreshFor
	}
	now := s.now()
	switch {
	case !unknown && now.Sub(s.fetched) < freshFor:
		return nil
	case s.renewing != nil:
		return s.renewing
	case !s.tried.IsZero() && now.Sub(s.tried) < betweenFetches:
		return nil
	}
	s.renewing, s.begun = make(chan struct{}), time.Now()
	go func() {
		keys, err := s.fetch(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err = err; err == nil {
			s.keys, s.fetched = keys, now
		}
		close(s.renewing)
		s.tried, s.renewing = s.now(), nil
	}()
	return s.renewing
}

func (s *keySet) matching(id, algorithm string) jwt.VerificationKeySet {
	var found jwt.VerificationKeySet
	for i := range s.keys {
		key := &s.keys[i]
		if id != "" && key.KeyID != id || key.Algorithm != "" && key.Algorithm != algorithm || !fits(key.Key, algorithm) {
			continue
		}
		found.Keys = append(found.Keys, key.Key)
	}
	return found
}

// fits says whether a public key is one for an algorithm. Secrets are not: every reader of the JWKS could sign with them.
func fits(key any, algorithm string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")) && key.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		return algorithm == map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[key.Curve.Params().Name]
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	text, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%s is not a JWKS: %w", s.source, err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		// A key of a kind that is not known here does not spoil the others.
		if json.Unmarshal(raw, &key) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		if public := key.Public(); public.Valid() {
			keys = append(keys, public)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no public key for signatures", s.source)
	}
	return keys, nil
}

func (s *keySet) read(ctx context.Context) ([]byte, error) {
	if isFile(s.source) {
		return os.ReadFile(s.source)
	}
	// The keys are for all requests: that the first one goes away must not take them from the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.source, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", s.source, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxKeysBytes+1))
	if err == nil && len(text) > maxKeysBytes {
		err = fmt.Errorf("%s has more than %d bytes", s.source, maxKeysBytes)
	}
	return text, err
}
