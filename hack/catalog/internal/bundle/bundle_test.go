package bundle

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
)

var release = releases.Release{Version: "0.2.0"}

func TestImageHasTheFoldersAndTheLabels(t *testing.T) {
	opened, err := Open(folder(t, "0.2.0"), release)
	require.NoError(t, err)
	image, err := opened.Image()
	require.NoError(t, err)

	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"operators.operatorframework.io.bundle.package.v1": "spot-training-operator"}, config.Config.Labels)
	var names []string
	content := mutate.Extract(image)
	defer content.Close()
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		names = append(names, header.Name)
	}
	assert.Equal(t, []string{
		"manifests", "manifests/spot-training-operator.clusterserviceversion.yaml", "metadata", "metadata/annotations.yaml",
	}, names)
}

func TestEqualBundlesGiveEqualImages(t *testing.T) {
	digest := func() string {
		opened, err := Open(folder(t, "0.2.0"), release)
		require.NoError(t, err)
		image, err := opened.Image()
		require.NoError(t, err)
		hash, err := image.Digest()
		require.NoError(t, err)
		return hash.String()
	}
	assert.Equal(t, digest(), digest())
}

func TestABundleOfAnotherVersionIsRefused(t *testing.T) {
	_, err := Open(folder(t, "0.1.0"), release)
	assert.EqualError(t, err, "the bundle is spot-training-operator.v0.1.0 (version 0.1.0), not spot-training-operator.v0.2.0: run make bundle")
	recorded := release
	recorded.Commit = "abc"
	_, err = Open(folder(t, "0.1.0"), recorded)
	assert.ErrorContains(t, err, "record another commit in catalog/releases.yaml")
}

func TestAFolderWithoutABundleIsRefused(t *testing.T) {
	_, err := Open(t.TempDir(), release)
	assert.ErrorContains(t, err, "read the bundle")
	empty := folder(t, "0.2.0")
	write(t, empty, "metadata/annotations.yaml", "annotations: {}\n")
	_, err = Open(empty, release)
	assert.ErrorContains(t, err, "has no annotations: run make bundle")
}

// folder is a small bundle.
func folder(t *testing.T, version string) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "metadata/annotations.yaml", "annotations:\n  operators.operatorframework.io.bundle.package.v1: spot-training-operator\n")
	write(t, root, "manifests/spot-training-operator.clusterserviceversion.yaml",
		"metadata:\n  name: spot-training-operator.v"+version+"\nspec:\n  version: "+version+"\n")
	return root
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
