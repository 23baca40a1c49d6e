package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

var (
	secret = []byte("0123456789abcdef0123456789abcdef")
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func at(offset time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(now.Add(offset)) }

func claims(change ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{
		"sub": "alice", "exp": at(time.Hour), "scope": "jobs:read jobs:write", "namespaces": []string{"team-a"},
		"iss": "https://issuer.example.com", "aud": "job-service",
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func with(name string, value any) func(jwt.MapClaims) {
	return func(c jwt.MapClaims) { c[name] = value }
}

func without(name string) func(jwt.MapClaims) {
	return func(c jwt.MapClaims) { delete(c, name) }
}

func sign(t *testing.T, method jwt.SigningMethod, key any, id string, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	if id != "" {
		token.Header["kid"] = id
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

func options() auth.Options {
	return auth.Options{
		Secrets: [][]byte{secret}, Issuer: "https://issuer.example.com", Audience: "job-service",
		Now: func() time.Time { return now }, DefaultNamespace: "default", MaxLifetime: auth.DefaultMaxLifetime,
	}
}

func newAuthenticator(t *testing.T, o auth.Options) *auth.Authenticator {
	t.Helper()
	a, err := auth.New(o)
	require.NoError(t, err)
	return a
}

func TestSecretSignedTokens(t *testing.T) {
	other := []byte("another secret of thirty-two byte")
	hs := jwt.SigningMethodHS256
	good := sign(t, hs, secret, "", claims())
	for _, test := range []struct {
		name, token string
		// reason is a part of the refusal; empty: it is accepted.
		reason string
	}{
		{"good", good, ""},
		{"HS512", sign(t, jwt.SigningMethodHS512, secret, "", claims()), ""},
		{"expired within the leeway", sign(t, hs, secret, "", claims(with("exp", at(-20*time.Second)))), ""},
		{"not valid yet within the leeway", sign(t, hs, secret, "", claims(with("nbf", at(20*time.Second)))), ""},
		{"several audiences", sign(t, hs, secret, "", claims(with("aud", []string{"x", "job-service"}))), ""},
		{"expired", sign(t, hs, secret, "", claims(with("exp", at(-time.Minute)))), "expired"},
		{"without expiry", sign(t, hs, secret, "", claims(without("exp"))), "lacks a claim"},
		{"not valid yet", sign(t, hs, secret, "", claims(with("nbf", at(time.Minute)))), "not valid yet"},
		{"another issuer", sign(t, hs, secret, "", claims(with("iss", "https://evil.example.com"))), "another issuer"},
		{"no issuer", sign(t, hs, secret, "", claims(without("iss"))), "lacks a claim"},
		{"another audience", sign(t, hs, secret, "", claims(with("aud", "else"))), "another audience"},
		{"another secret", sign(t, hs, other, "", claims()), "signature"},
		{"no subject", sign(t, hs, secret, "", claims(without("sub"))), "sub"},
		{"a user of Kubernetes' own", sign(t, hs, secret, "", claims(with("sub", "system:admin"))), "system:"},
		{"wrong type of a claim", sign(t, hs, secret, "", claims(with("namespaces", 7))), "wrong type"},
		{"wrong type of the expiry", sign(t, hs, secret, "", claims(with("exp", "soon"))), "wrong type"},
		{"unsigned", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", claims()), "algorithm"},
		{"signature cut off", good[:strings.LastIndexByte(good, '.')+1], "signature"},
		{"signature changed", good[:len(good)-4] + "AAAA", "signature"},
		{"two parts", "a.b", "three parts"},
		{"no base64", "§.b.c", "header"},
		{"header that is no JSON", "AAAA.b.c", "header"},
		{"empty", "", "three parts"},
		{"too long", strings.Repeat("a", 17<<10), "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAuthenticator(t, options())
			for range 2 { // The second time it is remembered.
				identity, err := a.Authenticate(t.Context(), test.token)
				if test.reason == "" {
					require.NoError(t, err)
					assert.Equal(t, "alice", identity.User.Username)
					assert.Equal(t, []string{"team-a"}, identity.Namespaces)
					assert.True(t, identity.Has(auth.ScopeWrite))
					assert.False(t, identity.Has(auth.ScopeWork))
					continue
				}
				var invalid *auth.InvalidToken
				require.ErrorAs(t, err, &invalid)
				assert.Contains(t, invalid.Reason, test.reason)
			}
		})
	}
}

// A public key is known to every client: as the secret of an HMAC it would let every client sign.
func TestAlgorithmsCannotBeConfused(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	file := writeKeys(t, filepath.Join(t.TempDir(), "keys.json"), jose.JSONWebKey{Key: &private.PublicKey, KeyID: "k"},
		jose.JSONWebKey{Key: secret, KeyID: "oct"})

	o := options()
	o.Secrets, o.JWKS = nil, file
	a := newAuthenticator(t, o)
	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodRS256, private, "k", claims()))
	require.NoError(t, err)
	for _, token := range []string{
		sign(t, jwt.SigningMethodHS256, public, "k", claims()),
		sign(t, jwt.SigningMethodHS256, der, "k", claims()),
		sign(t, jwt.SigningMethodHS256, secret, "oct", claims()),
		sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "k", claims()),
	} {
		_, err := a.Authenticate(t.Context(), token)
		var invalid *auth.InvalidToken
		assert.ErrorAs(t, err, &invalid)
	}
}

func writeKeys(t *testing.T, path string, keys ...jose.JSONWebKey) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

func TestKeysOfAnIssuer(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	second, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	edPublic, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)

	var served atomic.Pointer[jose.JSONWebKeySet]
	var fetched atomic.Int32
	served.Store(&jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: &ec.PublicKey, KeyID: "ec", Use: "sig", Algorithm: "ES256"}, {Key: edPublic, KeyID: "ed"}, {Key: &weak.PublicKey, KeyID: "weak"},
		{Key: &second.PublicKey, KeyID: "enc", Use: "enc"},
	}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		if keys := served.Load(); keys != nil {
			_ = json.NewEncoder(w).Encode(keys)
			return
		}
		http.Error(w, "no keys today", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	clock := now
	o := options()
	o.JWKS, o.LoopbackJWKS, o.Now = server.URL, true, func() time.Time { return clock }
	a := newAuthenticator(t, o)
	accepted := func(token string) bool {
		_, err := a.Authenticate(t.Context(), token)
		var invalid *auth.InvalidToken
		require.True(t, err == nil || errors.As(err, &invalid), "%v", err)
		return err == nil
	}
	es := jwt.SigningMethodES256
	assert.True(t, accepted(sign(t, es, ec, "ec", claims())))
	assert.True(t, accepted(sign(t, es, ec, "", claims(with("jti", "1")))), "without a key ID")
	assert.True(t, accepted(sign(t, jwt.SigningMethodEdDSA, ed, "ed", claims())))
	assert.True(t, accepted(sign(t, jwt.SigningMethodHS256, secret, "", claims())), "the secret is good beside the keys")
	assert.False(t, accepted(sign(t, es, second, "ec", claims())), "another key under the same ID")
	assert.False(t, accepted(sign(t, es, second, "enc", claims())), "a key for encryption")
	assert.False(t, accepted(sign(t, jwt.SigningMethodRS256, weak, "weak", claims())), "a weak key")
	assert.EqualValues(t, 1, fetched.Load(), "keys are fetched once")

	// A new key is found by its ID, and not searched with each token.
	clock = clock.Add(11 * time.Second)
	served.Store(&jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &ec.PublicKey, KeyID: "ec"}, {Key: &second.PublicKey, KeyID: "new"}}})
	assert.True(t, accepted(sign(t, es, second, "new", claims())))
	for i := range 20 {
		assert.False(t, accepted(sign(t, es, second, "unknown", claims(with("jti", i)))))
	}
	assert.EqualValues(t, 2, fetched.Load())

	// While the issuer does not answer, the keys stay good.
	served.Store(nil)
	clock = clock.Add(20 * time.Minute)
	assert.True(t, accepted(sign(t, es, ec, "ec", claims())))
	assert.EqualValues(t, 3, fetched.Load())

	// A key that was taken away is no longer good, not even for tokens that are remembered.
	served.Store(&jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &second.PublicKey, KeyID: "new"}}})
	clock = clock.Add(6 * time.Minute)
	assert.False(t, accepted(sign(t, es, ec, "ec", claims())))
}

func TestKeysThatCannotBeHad(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	o := options()
	o.JWKS = filepath.Join(t.TempDir(), "keys.json")
	clock := now
	o.Now = func() time.Time { return clock }
	a := newAuthenticator(t, o)
	token := sign(t, jwt.SigningMethodES256, key, "k", claims())
	for _, content := range []string{"", "{", `{"keys": []}`, `{"keys": [{"kty": "new"}]}`} {
		if content != "" {
			require.NoError(t, os.WriteFile(o.JWKS, []byte(content), 0o600))
		}
		_, err = a.Authenticate(t.Context(), token)
		require.ErrorIs(t, err, auth.ErrUnavailable, content)
		clock = clock.Add(11 * time.Second)
	}
	writeKeys(t, o.JWKS, jose.JSONWebKey{Key: &key.PublicKey, KeyID: "k"})
	_, err = a.Authenticate(t.Context(), token)
	require.NoError(t, err)
}

// reviewer knows one token, as Kubernetes does.
type reviewer struct {
	token string
	asked int
	err   error
}

func (r *reviewer) Review(_ context.Context, token string) (auth.User, bool, error) {
	r.asked++
	return auth.User{Username: "system:serviceaccount:team-b:robot", Groups: []string{"system:serviceaccounts"}}, token == r.token, r.err
}

func TestTokensOfKubernetes(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	issuers, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	token := sign(t, jwt.SigningMethodES256, key, "cluster", claims())
	r := &reviewer{token: token}
	clock := now
	o := options()
	o.Reviewer, o.Now = r, func() time.Time { return clock }
	o.JWKS = writeKeys(t, filepath.Join(t.TempDir(), "keys.json"), jose.JSONWebKey{Key: &issuers.PublicKey, KeyID: "issuer"})
	a := newAuthenticator(t, o)

	for range 5 {
		identity, err := a.Authenticate(t.Context(), token)
		require.NoError(t, err)
		assert.Equal(t, "system:serviceaccount:team-b:robot", identity.User.Username)
		assert.Equal(t, "team-b", identity.DefaultNamespace)
		assert.True(t, identity.Kubernetes && identity.AllNamespaces && identity.Has(auth.ScopeWork))
	}
	assert.Equal(t, 1, r.asked, "the answer is remembered")
	clock = clock.Add(31 * time.Second)
	_, err = a.Authenticate(t.Context(), token)
	require.NoError(t, err)
	assert.Equal(t, 2, r.asked, "but not for long")

	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, issuers, "issuer", claims()))
	require.NoError(t, err)
	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, secret, "", claims()))
	require.NoError(t, err)
	assert.Equal(t, 2, r.asked, "Kubernetes need not know the issuer's tokens")

	var invalid *auth.InvalidToken
	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, key, "else", claims()))
	require.ErrorAs(t, err, &invalid)
	// A token with a wrong HMAC is none of Kubernetes', whatever it says.
	r.token = sign(t, jwt.SigningMethodHS256, []byte("not the secret"), "", claims())
	_, err = a.Authenticate(t.Context(), r.token)
	require.ErrorAs(t, err, &invalid)

	r.err = errors.New("connection refused")
	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, key, "third", claims()))
	require.ErrorIs(t, err, auth.ErrUnavailable)
}

func TestClaims(t *testing.T) {
	for _, test := range []struct {
		name      string
		claims    jwt.MapClaims
		namespace string
		in, out   []string
		groups    []string
	}{
		{"no namespaces", claims(without("namespaces")), "default", []string{"default"}, []string{"team-a", ""}, nil},
		{"a namespace of its own", claims(without("namespaces"), with("namespace", "team-b")), "team-b", []string{"team-b"}, []string{"default"}, nil},
		{"one as a text", claims(with("namespaces", "team-c")), "team-c", []string{"team-c"}, []string{"default"}, nil},
		{"several", claims(with("namespaces", []string{"team-c", "default"})), "default", []string{"team-c", "default"}, []string{"team-a", ""}, nil},
		{"all", claims(with("namespaces", "*")), "default", []string{"team-c", "default", ""}, nil, nil},
		{"groups", claims(with("groups", []string{"ml", "system:masters"})), "team-a", []string{"team-a"}, nil, []string{"ml"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			identity, err := newAuthenticator(t, options()).Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, secret, "", test.claims))
			require.NoError(t, err)
			assert.Equal(t, test.namespace, identity.DefaultNamespace)
			for _, namespace := range test.in {
				assert.True(t, identity.InNamespace(namespace), namespace)
			}
			for _, namespace := range test.out {
				assert.False(t, identity.InNamespace(namespace), namespace)
			}
			assert.Equal(t, append(test.groups, "system:authenticated"), identity.User.Groups)
		})
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	_, err := auth.New(auth.Options{})
	require.ErrorContains(t, err, "no way to verify")
	_, err = auth.New(auth.Options{Secrets: [][]byte{[]byte("short")}})
	require.ErrorContains(t, err, "at least 32")
	_, err = auth.New(auth.Options{Secrets: [][]byte{secret}, Prefix: "system:"})
	require.ErrorContains(t, err, "choose another")
	_, err = auth.Sign([]byte("short"), auth.Claims{})
	require.ErrorContains(t, err, "at least 32")
	_, err = auth.Sign(secret, auth.Claims{})
	require.ErrorContains(t, err, "expiry")
}
