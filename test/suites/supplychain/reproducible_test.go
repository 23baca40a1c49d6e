package supplychain_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The second build is that of another user in another folder, with files of another time.
func TestTwoBuildsOfTheManagersImageHaveOneDigest(t *testing.T) {
	programs, other := t.TempDir(), filepath.Join(t.TempDir(), "another", "checkout")
	copySources(t, other)
	first := buildManager(t, root, programs)
	second := buildManager(t, other, programs, "HOME="+t.TempDir(), "USER=another", "LOGNAME=another", "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
	assert.Equal(t, first, second)
}

// buildManager returns the digest of the image of the sources in the folder.
func buildManager(t *testing.T, folder, programs string, env ...string) string {
	t.Helper()
	state := t.TempDir()
	command := exec.CommandContext(t.Context(), "hack/images.sh", "manager", "--output", filepath.Join(state, "image.tar"))
	command.Dir = folder
	command.Env = append(os.Environ(), "LOCALCLUSTER_STATE="+state, "LOCALCLUSTER_BIN="+state, "BIN="+programs)
	// What is compiled and downloaded is shared with all builds of this machine, whose HOME the second one does not have.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		require.NoError(t, err)
		command.Env = append(command.Env, name+"="+strings.TrimSpace(string(value)))
	}
	command.Env = append(command.Env, env...)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).Find(output)
	require.NotNil(t, digest, "%s", output)
	return string(digest)
}

// copySources copies what a Go program is built of, and the scripts.
func copySources(t *testing.T, to string) {
	t.Helper()
	for _, path := range []string{"api", "controllers", "internal", "hack/images.sh", "hack/lib.sh", "hack/localcluster", "main.go", "go.mod", "go.sum", "config"} {
		from, into := filepath.Join(root, path), filepath.Join(to, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(into), 0o755))
		output, err := exec.CommandContext(t.Context(), "cp", "--recursive", "--dereference", from, into).CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
}
