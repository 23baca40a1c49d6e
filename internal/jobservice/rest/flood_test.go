package rest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// reviewer counts what Kubernetes is asked.
type reviewer struct {
	good  string
	asked atomic.Int32
}

func (r *reviewer) Review(_ context.Context, token string) (auth.User, bool, error) {
	r.asked.Add(1)
	time.Sleep(5 * time.Millisecond)
	return auth.User{Username: "system:serviceaccount:team-a:robot"}, token == r.good, nil
}

// A client that sends its request a little at a time holds no connection for long.
func TestASlowClientIsCutOff(t *testing.T) {
	s := newService(t, newMemory())
	server := rest.Server(s.Config.Handler)
	for name, timeout := range map[string]time.Duration{
		"headers": server.ReadHeaderTimeout, "request": server.ReadTimeout, "answer": server.WriteTimeout, "connection": server.IdleTimeout,
	} {
		assert.True(t, timeout > 0 && timeout <= 2*time.Minute, "%s: %s", name, timeout)
	}
	server.ReadTimeout = 50 * time.Millisecond
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer connection.Close()
	_, err = fmt.Fprintf(connection, "POST /api/v1/jobs/ HTTP/1.1\r\nHost: jobs\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\n\r\n{", token(t, all))
	require.NoError(t, err)
	answer, err := io.ReadAll(connection) // until the server closes it
	require.NoError(t, err)
	assert.Contains(t, string(answer), "the body could not be read to its end")
}

// Made-up tokens neither keep Kubernetes busy nor those out who are known already.
func TestAFloodOfMadeUpTokens(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	made := func(id int) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"sub": "x", "jti": id}).SignedString(key)
		require.NoError(t, err)
		return "Bearer " + text
	}
	now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
	r := &reviewer{good: strings.TrimPrefix(made(-1), "Bearer ")}
	authenticator, err := auth.New(auth.Options{Secrets: [][]byte{secret}, Reviewer: r, Now: now.Now})
	require.NoError(t, err)
	s := newService(t, newMemory(), func(o *rest.Options) {
		o.Authenticator, o.Limits, o.Now = authenticator, rest.Limits{Other: 5}, now.Now
	})
	get := func(authorization string) int {
		return s.send(t, "GET", "/api/v1/jobs/", noToken, "", "Authorization", authorization).status
	}
	require.Equal(t, http.StatusOK, get("Bearer "+r.good))
	var tokens []string
	for i := range 100 {
		tokens = append(tokens, made(i))
	}
	var group sync.WaitGroup
	var refused, limited atomic.Int32
	for _, token := range tokens {
		group.Go(func() {
			switch get(token) {
			case http.StatusUnauthorized:
				refused.Add(1)
			case http.StatusTooManyRequests:
				limited.Add(1)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 1+5, r.asked.Load())
	assert.EqualValues(t, 5, refused.Load(), "the first one was good, and is not counted")
	assert.EqualValues(t, 95, limited.Load())
	assert.Equal(t, http.StatusOK, get("Bearer "+r.good), "it was verified before")
	now.Add(45 * time.Second)
	assert.Equal(t, http.StatusOK, get("Bearer "+r.good), "also when it is to be verified again")
	assert.EqualValues(t, 2+5, r.asked.Load())
	assert.Equal(t, http.StatusTooManyRequests, get(made(100)))
	now.Add(time.Minute)
	assert.Equal(t, http.StatusUnauthorized, get(made(100)))
}
