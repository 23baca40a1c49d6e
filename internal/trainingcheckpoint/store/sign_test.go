package store_test

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// fetch reads a URL as a client does that has nothing but the URL.
func fetch(t *testing.T, url string) (status int, content string) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

func uploaded(t *testing.T, to *store.Store, contents map[string]string) {
	t.Helper()
	dir, m := checkpoint(t, "checkpoint-epoch-1", contents)
	area, err := to.Look(t.Context())
	require.NoError(t, err)
	_, err = to.Upload(t.Context(), area, 0, dir, "checkpoint-epoch-1", m)
	require.NoError(t, err)
}

func TestASignedURLShowsAFileToEveryoneForATime(t *testing.T) {
	onEach(t, func(t *testing.T, s stores.Store) {
		contents := map[string]string{"state.pt": "weights", "a file with % and ü.bin": "more", "empty": ""}
		to := open(t, s.URL(bucket, prefix), s.Secret())
		uploaded(t, to, contents)
		found, _, err := to.Find(t.Context())
		require.NoError(t, err)
		signed, err := to.Sign(t.Context(), found[0], time.Hour)
		require.NoError(t, err)
		require.Len(t, signed, 4)
		for _, f := range signed[:3] {
			status, content := fetch(t, f.URL)
			assert.Equal(t, http.StatusOK, status, "%s: %s", f.Path, content)
			assert.Equal(t, contents[f.Path], content)
			assert.Equal(t, sumOf(content), f.SHA256)
		}
		assert.Equal(t, manifest.FileName, signed[3].Path)
		_, text := fetch(t, signed[3].URL)
		_, err = manifest.Parse([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, sumOf(text), signed[3].SHA256)

		if _, fake := s.(*stores.GCS); fake { // it lets every client read everything
			return
		}
		short, err := to.Sign(t.Context(), found[0], 2*time.Second)
		require.NoError(t, err)
		status, _ := fetch(t, short[0].URL)
		assert.Equal(t, http.StatusOK, status)
		require.Eventually(t, func() bool {
			status, _ := fetch(t, short[0].URL)
			return status == http.StatusForbidden
		}, time.Minute, 200*time.Millisecond, "it expires")
		status, _ = fetch(t, signed[0].URL)
		assert.Equal(t, http.StatusOK, status, "the other has not")
		status, _ = fetch(t, signed[0].URL+"0")
		assert.Equal(t, http.StatusForbidden, status, "it cannot be changed")
	})
}

func TestNothingIsSignedForACheckpointThatIsNotWhole(t *testing.T) {
	onEach(t, func(t *testing.T, s stores.Store) {
		to := open(t, s.URL(bucket, prefix), s.Secret())
		uploaded(t, to, map[string]string{"state.pt": "weights", "vocabulary": "words"})
		found, _, err := to.Find(t.Context())
		require.NoError(t, err)
		s.Put(bucket, prefix+"/blobs/sha256/"+sumOf("weights"), []byte("w"))
		_, err = to.Sign(t.Context(), found[0], time.Hour)
		require.True(t, manifest.IsInvalid(err), "%v", err)
		assert.ErrorContains(t, err, "state.pt has 1 bytes in the storage instead of 7")
		s.Remove(bucket, prefix+"/blobs/sha256/"+sumOf("weights"))
		_, err = to.Sign(t.Context(), found[0], time.Hour)
		require.True(t, manifest.IsInvalid(err), "%v", err)
		assert.ErrorContains(t, err, "state.pt is missing in the storage")
	})
}

// Not all credentials that can read can sign.
func TestSigningSaysWhatItNeeds(t *testing.T) {
	azure := stores.NewAzure(t, stores.AnyPort)
	azure.MakeBucket(bucket)
	uploaded(t, open(t, azure.URL(bucket, prefix), azure.Secret()), map[string]string{"state.pt": "weights"})
	token := map[string]string{"AZURE_STORAGE_SAS_TOKEN": azure.Token(bucket, time.Hour)}
	gcs := stores.NewGCS(t, stores.AnyPort)
	gcs.MakeBucket(bucket)
	uploaded(t, open(t, gcs.URL(bucket, prefix), gcs.Secret()), map[string]string{"state.pt": "weights"})
	anonymous, err := store.New(gcs.URL(bucket, prefix), "")
	require.NoError(t, err)
	for want, from := range map[string]*store.Store{
		"an access key of the storage account, as AZURE_STORAGE_KEY": open(t, azure.URL(bucket, prefix), token),
		"the key of a service account, as key.json":                  anonymous,
	} {
		found, _, err := from.Find(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 1)
		_, err = from.Sign(t.Context(), found[0], time.Hour)
		var problem *report.Problem
		require.ErrorAs(t, err, &problem, "%v", err)
		assert.Equal(t, report.ReasonCredentialsMissing, problem.Reason)
		assert.Contains(t, problem.Message, want)
		assert.Contains(t, problem.Message, filepath.Base(bucket))
	}
}
