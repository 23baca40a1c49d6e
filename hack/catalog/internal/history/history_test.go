package history

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExportReadsTheFilesOfTheCommitNotOfTheTree(t *testing.T) {
	root := repository(t)
	first := commit(t, root, map[string]string{"bundle/manifests/a.yaml": "first", "other": "x"})
	commit(t, root, map[string]string{"bundle/manifests/a.yaml": "second"})
	require.NoError(t, os.WriteFile(filepath.Join(root, "bundle/manifests/a.yaml"), []byte("not committed"), 0o600))

	folder := filepath.Join(t.TempDir(), "out")
	require.NoError(t, Repository{Root: root}.Export(t.Context(), first, folder, "bundle"))
	assert.Equal(t, "first", read(t, folder, "bundle/manifests/a.yaml"))
	assert.NoFileExists(t, filepath.Join(folder, "other"))
}

func TestExportOfEverythingKeepsModesAndLinks(t *testing.T) {
	root := repository(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "script"), []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.Symlink("script", filepath.Join(root, "link")))
	hash := commit(t, root, nil)

	folder := t.TempDir()
	require.NoError(t, Repository{Root: root}.Export(t.Context(), hash, folder))
	info, err := os.Stat(filepath.Join(folder, "script"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o100, "a program must stay one")
	target, err := os.Readlink(filepath.Join(folder, "link"))
	require.NoError(t, err)
	assert.Equal(t, "script", target)
}

func TestExportSaysWhatToDoAboutAMissingCommit(t *testing.T) {
	root := repository(t)
	first := commit(t, root, map[string]string{"a": "1"})
	commit(t, root, map[string]string{"a": "2"})
	shallow := filepath.Join(t.TempDir(), "shallow")
	git(t, root, "clone", "--quiet", "--depth=1", "file://"+root, shallow)

	err := Repository{Root: shallow}.Export(t.Context(), first, t.TempDir())
	assert.EqualError(t, err, "commit "+first+" is not in this clone, which is shallow: run git fetch --unshallow")
	unknown := strings.Repeat("0", 40)
	err = Repository{Root: root}.Export(t.Context(), unknown, t.TempDir())
	assert.EqualError(t, err, "commit "+unknown+" is not in this clone: run git fetch, and check the hash if it stays so")
	err = Repository{Root: t.TempDir()}.Export(t.Context(), first, t.TempDir())
	assert.ErrorContains(t, err, "is no git repository")
}

func TestExportNamesAPathThatTheCommitLacks(t *testing.T) {
	root := repository(t)
	hash := commit(t, root, map[string]string{"a": "1"})
	err := Repository{Root: root}.Export(t.Context(), hash, t.TempDir(), "bundle")
	assert.ErrorContains(t, err, "read bundle of commit "+hash)
}

func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	git(t, root, "init", "--quiet")
	return root
}

// commit writes files and commits everything that there is.
func commit(t *testing.T, root string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	git(t, root, "add", "--all")
	git(t, root, "commit", "--quiet", "--message", "test")
	return git(t, root, "rev-parse", "HEAD")
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	command := exec.Command("git", append([]string{"-C", root, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	require.NoError(t, err, "git %v", args)
	return strings.TrimSpace(string(output))
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return string(data)
}
