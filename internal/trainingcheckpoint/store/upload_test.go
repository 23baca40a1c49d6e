package store_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// The store's answer to a first try can be lost, and two agents can be at it at once.
func TestAnUploadThatFindsItsCheckpointThereMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, s stores.Store) {
		to := open(t, s.URL(bucket, prefix), s.Secret())
		dir, m := checkpoint(t, "checkpoint-epoch-1", map[string]string{"state.pt": "weights", "empty": ""})
		otherDir, other := checkpoint(t, "checkpoint-epoch-1", map[string]string{"state.pt": "other weights"})
		before, err := to.Look(t.Context())
		require.NoError(t, err)

		_, err = to.Upload(t.Context(), before, 0, dir, "checkpoint-epoch-1", m)
		require.NoError(t, err)
		_, err = to.Upload(t.Context(), before, 0, dir, "checkpoint-epoch-1", m)
		require.NoError(t, err, "it is this very one")
		_, err = to.Upload(t.Context(), before, 0, otherDir, "checkpoint-epoch-1", other)
		require.ErrorIs(t, err, store.ErrOtherContent)

		kept, err := to.Load(t.Context(), to.Own("checkpoint-epoch-1"))
		require.NoError(t, err)
		assert.True(t, manifest.SameFiles(m, kept.Manifest), "what is there is not overwritten")
		s.Put(bucket, prefix+"/checkpoints/checkpoint-epoch-1/manifest.json", []byte("{}"))
		_, err = to.Upload(t.Context(), before, 0, dir, "checkpoint-epoch-1", m)
		require.ErrorIs(t, err, store.ErrOtherContent, "one that it did not know of is for the next look to judge")
		after, err := to.Look(t.Context())
		require.NoError(t, err)
		_, err = to.Upload(t.Context(), after, 0, dir, "checkpoint-epoch-1", m)
		require.NoError(t, err, "a damaged one is replaced")
	})
}

// An upload that is cut off at any point leaves no checkpoint, and the next one finishes it.
func TestACutUploadLeavesNoCheckpoint(t *testing.T) {
	contents := map[string]string{}
	for i := range 12 {
		contents["shard-"+strconv.Itoa(i)] = strings.Repeat(strconv.Itoa(i), 6<<20/len(strconv.Itoa(i)))
	}
	for name, cut := range map[string]struct {
		before, midway func(proxy *stores.Proxy, stop context.CancelFunc)
	}{
		"stopped before it began": {before: func(_ *stores.Proxy, stop context.CancelFunc) { stop() }},
		"stopped on its way":      {midway: func(_ *stores.Proxy, stop context.CancelFunc) { stop() }},
		"the store falls silent":  {midway: func(proxy *stores.Proxy, _ context.CancelFunc) { proxy.Silence(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := stores.NewS3(t, stores.AnyPort)
			s.MakeBucket(bucket)
			proxy := stores.NewProxy(t, strings.TrimPrefix(s.Endpoint, "http://"))
			to := open(t, s.URLVia("http://"+proxy.Address, bucket, prefix), s.Secret())
			patient := to.StallAfter
			dir, m := checkpoint(t, "checkpoint-epoch-1", contents)
			area, err := to.Look(t.Context())
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			proxy.Limit(8 << 20)
			to.StallAfter = 200 * time.Millisecond // and 15 times that while the store makes objects
			if cut.before != nil {
				cut.before(proxy, stop)
			}
			ended, watched := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(watched)
				for cut.midway != nil {
					select {
					case <-ended: // on a slow machine it has come to nothing before it was cut
						return
					case <-time.After(time.Millisecond):
					}
					if proxy.Moved() > 10<<20 {
						cut.midway(proxy, stop)
						return
					}
				}
			}()
			_, err = to.Upload(ctx, area, 0, dir, "checkpoint-epoch-1", m)
			close(ended)
			<-watched // so that nothing is cut any more
			require.Error(t, err)
			assert.False(t, manifest.IsInvalid(err), "%v says nothing of the checkpoint", err)
			assert.NotContains(t, strings.Join(s.Keys(bucket, prefix), " "), manifest.FileName)

			to.StallAfter = patient
			proxy.Limit(0)
			proxy.Silence(false)
			proxy.Cut()
			area, err = to.Look(t.Context())
			require.NoError(t, err)
			assert.Empty(t, area.Checkpoints)
			_, err = to.Upload(t.Context(), area, 0, dir, "checkpoint-epoch-1", m)
			require.NoError(t, err)
			area, err = to.Look(t.Context())
			require.NoError(t, err)
			require.Len(t, area.Checkpoints, 1)
			assert.True(t, area.Checkpoints[0].Valid, area.Why)
		})
	}
}

// A file that is not what its manifest says, because it was changed or cut, does not become visible.
func TestAFileThatIsNotWhatItsManifestSaysIsNotKept(t *testing.T) {
	onEach(t, func(t *testing.T, s stores.Store) {
		to := open(t, s.URL(bucket, prefix), s.Secret())
		for change, content := range map[string]string{"other": "WEIGHTS", "shorter": "weigh", "longer": "weights and more"} {
			dir, m := checkpoint(t, "checkpoint-epoch-1", map[string]string{"state.pt": "weights", "vocabulary": "words"})
			require.NoError(t, os.WriteFile(filepath.Join(dir.Name(), "state.pt"), []byte(content), 0o644))
			area, err := to.Look(t.Context())
			require.NoError(t, err)
			_, err = to.Upload(t.Context(), area, 0, dir, "checkpoint-epoch-1", m)
			require.True(t, manifest.IsInvalid(err), "%s: %v", change, err)
		}
		keys := strings.Join(s.Keys(bucket, prefix), " ")
		assert.NotContains(t, keys, manifest.FileName)
		assert.NotContains(t, keys, sumOf("weights"))
	})
}

// A store can list what it then does not find, when its servers do not all know the same. What such a manifest refers to
// must not be taken for garbage.
func TestNothingIsCollectedWhileAManifestIsListedButNotFound(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	var hides atomic.Bool
	behind, err := url.Parse(s.Endpoint)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(behind) // which leaves the Host that the request is signed with
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hides.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/checkpoint-epoch-1/manifest.json") {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("<Error><Code>NoSuchKey</Code><Message>not here</Message></Error>"))
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	to := open(t, s.URLVia(front.URL, bucket, prefix), s.Secret())
	for name, content := range map[string]string{"checkpoint-epoch-1": "first", "checkpoint-epoch-2": "second"} {
		dir, m := checkpoint(t, name, map[string]string{"state.pt": content})
		area, err := to.Look(t.Context())
		require.NoError(t, err)
		_, err = to.Upload(t.Context(), area, 0, dir, name, m)
		require.NoError(t, err)
	}
	s.Put(bucket, prefix+"/blobs/sha256/"+sumOf("garbage"), []byte("garbage"))
	blobs := func() []string {
		var sums []string
		for _, key := range s.Keys(bucket, prefix+"/blobs") {
			sums = append(sums, filepath.Base(key))
		}
		return slices.Sorted(slices.Values(sums))
	}
	sums := func(contents ...string) []string {
		all := map[string]bool{}
		for _, content := range contents {
			all[sumOf(content)] = true
		}
		return slices.Sorted(maps.Keys(all))
	}
	// The store's clock shows whole seconds: once the garbage of another job goes, what was written before it is old enough, too.
	s.Put(bucket, "ml/other/blobs/sha256/"+sumOf("garbage"), []byte("garbage"))
	other := open(t, s.URL(bucket, "ml/other"), s.Secret())
	require.Eventually(t, func() bool {
		return other.Collect(t.Context(), 0, time.Nanosecond) == nil && len(s.Keys(bucket, "ml/other/blobs")) == 0
	}, time.Minute, 50*time.Millisecond)

	hides.Store(true)
	unsure := open(t, s.URLVia(front.URL, bucket, prefix), s.Secret()) // which has not read it before
	require.NoError(t, unsure.Collect(t.Context(), 0, time.Nanosecond))
	assert.Equal(t, sums("first", "second", "garbage"), blobs())

	hides.Store(false)
	require.NoError(t, unsure.Collect(t.Context(), 0, time.Nanosecond))
	assert.Equal(t, sums("first", "second"), blobs())
}
