package mirror

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPushedImageIsServedWhereTheConfigurationPoints(t *testing.T) {
	m, err := Start("registry.example.com")
	require.NoError(t, err)
	image, err := random.Image(64, 1)
	require.NoError(t, err)
	require.NoError(t, m.Push(t.Context(), image, "registry.example.com/team/image:v1"))

	home := t.TempDir()
	environment, err := m.Home(home)
	require.NoError(t, err)
	assert.Contains(t, environment, "HOME="+home)
	assert.FileExists(t, filepath.Join(home, ".config/containers/policy.json"))
	configuration, err := os.ReadFile(filepath.Join(home, ".config/containers/registries.conf"))
	require.NoError(t, err)
	assert.Contains(t, string(configuration), `prefix = "registry.example.com"`)
	_, location, found := strings.Cut(string(configuration), `location = "`)
	require.True(t, found)
	location, _, _ = strings.Cut(location, `"`)

	reference, err := name.NewTag(location+"/team/image:v1", name.Insecure)
	require.NoError(t, err)
	pulled, err := remote.Image(reference)
	require.NoError(t, err)
	wanted, err := image.Digest()
	require.NoError(t, err)
	got, err := pulled.Digest()
	require.NoError(t, err)
	assert.Equal(t, wanted, got)

	require.NoError(t, m.Close())
	_, err = remote.Image(reference)
	assert.Error(t, err, "the registry must be gone")
}

func TestPushRefusesImagesOfOtherRegistries(t *testing.T) {
	m, err := Start("registry.example.com")
	require.NoError(t, err)
	defer func() { assert.NoError(t, m.Close()) }()
	image, err := random.Image(64, 1)
	require.NoError(t, err)
	assert.EqualError(t, m.Push(t.Context(), image, "other.example.com/team/image:v1"),
		"image other.example.com/team/image:v1 is not of the registry registry.example.com")
}
