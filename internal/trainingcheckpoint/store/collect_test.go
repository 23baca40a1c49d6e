package store_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// An agent can be killed at any moment while it deletes an old checkpoint. The others stay whole, and what is left of it goes next time.
func TestRetentionKilledBetweenAnyTwoRequestsLeavesWholeCheckpoints(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	behind, err := url.Parse(s.Endpoint)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(behind)
	var left atomic.Int64
	var kill context.CancelFunc
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left.Add(-1) < 0 {
			kill()
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	const old, kept = "checkpoint-epoch-1", "checkpoint-epoch-2"
	const anyAge = -time.Hour // the store's clock shows whole seconds

	for requests := int64(0); ; requests++ {
		area := fmt.Sprintf("%s-%d", prefix, requests)
		to := open(t, s.URL(bucket, area), s.Secret())
		for _, name := range []string{old, kept} {
			dir, m := checkpoint(t, name, map[string]string{"state.pt": "weights of " + name, "vocabulary": "words of both"})
			is, err := to.Look(t.Context())
			require.NoError(t, err)
			_, err = to.Upload(t.Context(), is, 0, dir, name, m)
			require.NoError(t, err)
		}

		killed := open(t, s.URLVia(front.URL, bucket, area), s.Secret())
		ctx, stop := context.WithCancel(t.Context())
		kill = stop
		left.Store(requests)
		err := killed.Delete(ctx, old)
		if err == nil {
			err = killed.Collect(ctx, 0, anyAge)
		}
		ended := err == nil
		stop()

		is, err := to.Look(t.Context())
		require.NoError(t, err)
		assert.Empty(t, is.Why, "after %d requests", requests)
		_, there := is.Find(kept)
		assert.True(t, there, "after %d requests", requests)

		require.NoError(t, to.Delete(t.Context(), old))
		require.NoError(t, to.Collect(t.Context(), 0, anyAge))
		is, err = to.Look(t.Context())
		require.NoError(t, err)
		assert.Empty(t, is.Why)
		assert.Len(t, is.Checkpoints, 1)
		blobs := path.Join(area, "blobs", "sha256")
		assert.ElementsMatch(t, []string{path.Join(blobs, sumOf("weights of "+kept)), path.Join(blobs, sumOf("words of both"))}, s.Keys(bucket, blobs))
		if ended {
			require.Greater(t, requests, int64(3), "it was killed on its way")
			return
		}
	}
}
