package checkpointagent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFromEnvironment(t *testing.T) {
	base := func() map[string]string {
		return map[string]string{
			"REPLICA_INDEX": "0", "CHECKPOINT_DIR": "/checkpoints/digits/uid-1", "CHECKPOINT_RETENTION": "3", "CHECKPOINT_ATTEMPT": "2",
			"CHECKPOINT_STORE": "s3://bucket/ns/digits/uid-1?region=eu-central-1", "RESUME_FROM": "gs://other/path", "RESUME_OPTIONAL": "true",
		}
	}
	env := base()
	s, err := fromEnvironment(func(name string) string { return env[name] })
	require.NoError(t, err)
	assert.Equal(t, "/checkpoints/digits/uid-1", s.Directory.Path)
	assert.Equal(t, 3, s.Retention)
	assert.Equal(t, 2, s.Attempt)
	assert.Equal(t, ":9464", s.Address)
	assert.Equal(t, "s3://bucket/ns/digits/uid-1", s.Store.String())
	assert.Equal(t, "gs://other/path", s.ResumeStore.String())
	assert.True(t, s.ResumeOptional)

	for name, value := range map[string]string{
		"REPLICA_INDEX": "", "CHECKPOINT_DIR": "relative", "CHECKPOINT_RETENTION": "-1", "CHECKPOINT_ATTEMPT": "x",
		"CHECKPOINT_STORE": "ftp://bucket", "RESUME_FROM": "relative", "AGENT_PORT": "x",
	} {
		env := base()
		env[name] = value
		_, err := fromEnvironment(func(name string) string { return env[name] })
		assert.ErrorContains(t, err, name)
	}
}
