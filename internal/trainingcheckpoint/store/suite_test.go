package store_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

const (
	bucket = "checkpoints"
	prefix = "ml/digits/uid-1"
)

// onEach runs a test with a bucket of each kind of object store.
func onEach(t *testing.T, test func(t *testing.T, s stores.Store)) {
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		test(t, s)
	})
}

// open opens a store as an agent does, with the credentials in a mounted Secret.
func open(t *testing.T, url string, secret map[string]string) *store.Store {
	t.Helper()
	folder := t.TempDir()
	for key, value := range secret {
		require.NoError(t, os.WriteFile(filepath.Join(folder, key), []byte(value), 0o600))
	}
	opened, err := store.New(url, folder)
	require.NoError(t, err)
	return opened
}

// checkpoint writes files into a folder and makes a manifest of them.
func checkpoint(t *testing.T, name string, contents map[string]string) (*os.Root, *manifest.Manifest) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(folder, 0o755))
	var files []manifest.File
	for path, content := range contents {
		require.NoError(t, os.WriteFile(filepath.Join(folder, path), []byte(content), 0o644))
		files = append(files, manifest.File{Path: path, Size: int64(len(content)), SHA256: sumOf(content)})
	}
	dir, err := os.OpenRoot(folder)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	m, err := manifest.New(name, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), files)
	require.NoError(t, err)
	return dir, m
}

func sumOf(content string) string {
	h := sha256.New()
	_, _ = h.Write([]byte(content))
	return manifest.Sum(h)
}
