package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func emptyRepository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	runGit(t, root, "init", "--quiet")
	return root
}

// commit writes files and commits the whole tree. It returns the hash.
func commit(t *testing.T, root string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		put(t, root, name, content)
	}
	runGit(t, root, "add", "--all")
	runGit(t, root, "commit", "--quiet", "--message", "test")
	return runGit(t, root, "rev-parse", "HEAD")
}

func put(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func contentOf(t *testing.T, root, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(data)
}

func runGit(t *testing.T, root string, args ...string) string {
	t.Helper()
	command := exec.Command("git", append([]string{"-C", root, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	require.NoError(t, err, "git %v", args)
	return strings.TrimSpace(string(output))
}
