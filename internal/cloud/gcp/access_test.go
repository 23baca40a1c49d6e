package gcp_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

func TestCredentials(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	elsewhere := fakegce.Start(t, fakegce.Options{})
	for name, test := range map[string]struct{ credentials, says string }{
		"no JSON":           {"secret-of-mine", "is no JSON"},
		"another type":      {`{"type": "external_account", "credential_source": {"file": "/etc/passwd"}}`, "'external_account', not service_account"},
		"half a key":        {`{"type": "service_account"}`, "lacks client_email"},
		"tokens of another": {string(elsewhere.CredentialsJSON()), "token_uri"},
		"no private key":    {`{"type": "service_account", "client_email": "a@b.c", "private_key": "secret-of-mine"}`, "private_key"},
	} {
		t.Run(name, func(t *testing.T) {
			provider, err := gcp.New(t.Context(), gcp.Options{Project: "p", Credentials: []byte(test.credentials), Endpoint: server.URL()})
			if err == nil {
				_, err = provider.List(t.Context(), zone, nil)
			}
			require.Error(t, err)
			assert.Equal(t, cloud.Permission, cloud.ClassOf(err), "%v", err)
			assert.Contains(t, err.Error(), test.says)
			assert.NotContains(t, err.Error(), "secret-of-mine")
		})
	}
	t.Run("revoked key", func(t *testing.T) {
		provider := newProvider(t, server, func(o *gcp.Options) { o.Credentials = server.RevokedCredentialsJSON() })
		_, err := provider.List(t.Context(), zone, nil)
		assert.Equal(t, cloud.Permission, cloud.ClassOf(err))
		assert.Contains(t, err.Error(), "Invalid JWT Signature")
	})
	t.Run("tokens that ended are replaced", func(t *testing.T) {
		provider := newProvider(t, server)
		_, err := provider.List(t.Context(), zone, nil)
		require.NoError(t, err)
		server.RevokeTokens()
		_, err = provider.List(t.Context(), zone, nil)
		assert.Equal(t, cloud.Permission, cloud.ClassOf(err))
		_, err = provider.List(t.Context(), zone, nil)
		require.NoError(t, err)
	})
}

func TestWorkloadIdentity(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	_, err := newProvider(t, server).Create(t.Context(), wish("control-plane"))
	require.NoError(t, err)
	metadata := httptest.NewServer(server.Metadata("control-plane"))
	t.Cleanup(metadata.Close)
	t.Setenv("GCE_METADATA_HOST", metadata.Listener.Addr().String())
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	provider := newProvider(t, server, func(o *gcp.Options) { o.Credentials = nil })
	_, err = provider.List(t.Context(), zone, nil)
	require.NoError(t, err)
}

func TestThePaceOfRequests(t *testing.T) {
	t.Run("a pause that Google asks for is kept", func(t *testing.T) {
		server := fakegce.Start(t, fakegce.Options{})
		clock := clocktesting.NewFakeClock(time.Now())
		provider := newProvider(t, server, func(o *gcp.Options) { o.Clock = clock })
		rateLimit(server, 7*time.Second)
		_, err := provider.List(t.Context(), zone, nil)
		limited := (*cloud.Error)(nil)
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, cloud.RateLimited, limited.Class)
		assert.Equal(t, 7*time.Second, limited.RetryAfter)
		clock.Step(5 * time.Second)
		_, err = provider.List(t.Context(), zone, nil)
		require.ErrorAs(t, err, &limited)
		assert.Equal(t, 2*time.Second, limited.RetryAfter)
		assert.Equal(t, 1, server.Calls("", ""), "Google is left alone")
		clock.Step(2 * time.Second)
		_, err = provider.List(t.Context(), zone, nil)
		require.NoError(t, err)
	})
	t.Run("no call waits long for its turn", func(t *testing.T) {
		server := fakegce.Start(t, fakegce.Options{})
		provider := newProvider(t, server, func(o *gcp.Options) { o.Rate = 0.1; o.Burst = 2 })
		for range 2 {
			_, err := provider.List(t.Context(), zone, nil)
			require.NoError(t, err)
		}
		_, err := provider.List(t.Context(), zone, nil)
		assert.Equal(t, cloud.RateLimited, cloud.ClassOf(err))
		assert.Equal(t, 2, server.Calls("", ""))
	})
	t.Run("a call ends with its context", func(t *testing.T) {
		server := fakegce.Start(t, fakegce.Options{})
		provider := newProvider(t, server)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := provider.List(ctx, zone, nil)
		assert.Equal(t, cloud.Transient, cloud.ClassOf(err))
	})
}
