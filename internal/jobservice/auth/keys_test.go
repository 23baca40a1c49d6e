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
)

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
	o.JWKS, o.Now = server.URL, func() time.Time { return now.Add(time.Duration(later.Load())) }
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
