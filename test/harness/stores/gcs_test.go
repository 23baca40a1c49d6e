package stores

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGCSListsABucketAlthoughItWasKilledWhileItWrote(t *testing.T) {
	s := NewGCS(t, AnyPort)
	s.MakeBucket("models")
	s.Put("models", "run/whole", []byte("content"))
	s.Stop()
	require.NoError(t, os.WriteFile(filepath.Join(s.folder, "models", "run", "half"), []byte("content"), 0o600))

	s.Start()

	assert.Equal(t, []string{"run/whole"}, s.Keys("models", ""))
}
