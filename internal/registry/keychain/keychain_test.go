package keychain

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCredentialsOfTheLongestNameAreTaken(t *testing.T) {
	keys, err := Parse([]byte(`{"auths": {
		"https://registry.example.com/v2/": {"username": "all", "password": "p"},
		"registry.example.com/team": {"auth": "dGVhbTpw"},
		"https://index.docker.io/v1/": {"username": "hub", "password": "p"}
	}}`))
	require.NoError(t, err)
	for image, user := range map[string]string{
		"registry.example.com/other/xx:1": "all", "registry.example.com/team/xx:1": "team", "registry.example.com/teams:1": "all",
		"library/xx:1": "hub", "other.example.com/xx:1": "",
	} {
		tag, err := name.NewTag(image)
		require.NoError(t, err)
		found, err := keys.Resolve(tag.Context())
		require.NoError(t, err)
		config, err := found.Authorization()
		require.NoError(t, err)
		assert.Equal(t, user, config.Username, image)
	}
}

func TestWhatCannotBeReadIsNotRepeated(t *testing.T) {
	_, err := Parse([]byte(`{"auths": {"registry.example.com": {"password": planted-secret}}}`))
	require.ErrorIs(t, err, ErrUnreadable)
	assert.NotContains(t, err.Error(), "planted")
}
