package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

// Who can change keys on their way can sign tokens, and an issuer signs tokens for other services too.
func TestKeysComeByHTTPSAndForAnAudience(t *testing.T) {
	for source, want := range map[string]string{
		"http://issuer.example.com/keys": "use https", "http://localhost/keys": "use https", "http://127.0.0.1/keys": "use https",
		"ftp://issuer.example.com/keys": "use https", "https://issuer.example.com/keys": "", "/etc/keys.json": "",
	} {
		o := options()
		o.JWKS = source
		if _, err := auth.New(o); want == "" {
			require.NoError(t, err, source)
		} else {
			require.ErrorContains(t, err, want, source)
		}
		o.JWKS, o.Audience = "https://issuer.example.com/keys", ""
		_, err := auth.New(o)
		require.ErrorContains(t, err, "needs an audience")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	var fetched atomic.Bool
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Store(true)
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k"}}})
	}))
	defer plain.Close()
	redirecting := httptest.NewServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer redirecting.Close()
	o := options()
	o.JWKS, o.LoopbackJWKS = redirecting.URL, true
	_, err = newAuthenticator(t, o).Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, key, "k", claims()))
	require.ErrorIs(t, err, auth.ErrUnavailable)
	assert.False(t, fetched.Load(), "a redirect to http is not followed")
}

// An issuer that hangs does not keep out tokens whose key is known.
func TestAnIssuerThatHangs(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	var fetched atomic.Int32
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fetched.Add(1) > 1 {
			<-ended
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k"}}})
	}))
	defer server.Close()
	defer close(ended)
	var later atomic.Int64
	o := options()
	o.JWKS, o.LoopbackJWKS, o.Now = server.URL, true, func() time.Time { return now.Add(time.Duration(later.Load())) }
	a := newAuthenticator(t, o)
	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, key, "k", claims()))
	require.NoError(t, err)

	later.Store(int64(6 * time.Minute))
	begun := time.Now()
	var group sync.WaitGroup
	for i := range 10 {
		token := sign(t, jwt.SigningMethodES256, key, "k", claims(with("jti", fmt.Sprint(i))))
		group.Go(func() {
			_, err := a.Authenticate(t.Context(), token)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	assert.Less(t, time.Since(begun), 2*time.Second)
	begun = time.Now()
	_, err = a.Authenticate(t.Context(), sign(t, jwt.SigningMethodES256, key, "k", claims(with("jti", "late"))))
	require.NoError(t, err)
	assert.Less(t, time.Since(begun), 500*time.Millisecond, "it was waited for once")
	assert.EqualValues(t, 2, fetched.Load(), "all wait for the same answer")
}
