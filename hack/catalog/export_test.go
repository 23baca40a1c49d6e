package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExportReadsTheFilesOfTheCommitNotOfTheTree(t *testing.T) {
	root := emptyRepository(t)
	first := commit(t, root, map[string]string{"bundle/manifests/a.yaml": "first", "other": "x"})
	commit(t, root, map[string]string{"bundle/manifests/a.yaml": "second"})
	require.NoError(t, os.WriteFile(filepath.Join(root, "bundle/manifests/a.yaml"), []byte("not committed"), 0o600))

	folder := filepath.Join(t.TempDir(), "out")
	require.NoError(t, export(t.Context(), root, first, folder, "bundle"))
	assert.Equal(t, "first", contentOf(t, folder, "bundle/manifests/a.yaml"))
	assert.NoFileExists(t, filepath.Join(folder, "other"))
}

func TestExportOfEverythingKeepsModesAndLinks(t *testing.T) {
	root := emptyRepository(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "script"), []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.Symlink("script", filepath.Join(root, "link")))
	hash := commit(t, root, nil)

	folder := t.TempDir()
	require.NoError(t, export(t.Context(), root, hash, folder))
	info, err := os.Stat(filepath.Join(folder, "script"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o100, "a program must stay one")
	target, err := os.Readlink(filepath.Join(folder, "link"))
	require.NoError(t, err)
	assert.Equal(t, "script", target)
}

func TestExportSaysWhatToDoAboutAMissingCommit(t *testing.T) {
	root := emptyRepository(t)
	first := commit(t, root, map[string]string{"a": "1"})
	commit(t, root, map[string]string{"a": "2"})
	shallow := filepath.Join(t.TempDir(), "shallow")
	runGit(t, root, "clone", "--quiet", "--depth=1", "file://"+root, shallow)

	err := export(t.Context(), shallow, first, t.TempDir())
	assert.EqualError(t, err, "commit "+first+" is not in this clone, which is shallow: run git fetch --unshallow")
	unknown := strings.Repeat("0", 40)
	err = export(t.Context(), root, unknown, t.TempDir())
	assert.EqualError(t, err, "commit "+unknown+" is not in this clone: run git fetch; if it is still missing, check the hash")
	err = export(t.Context(), t.TempDir(), first, t.TempDir())
	assert.ErrorContains(t, err, "is not a git repository")
}

func TestExportNamesAPathThatTheCommitLacks(t *testing.T) {
	root := emptyRepository(t)
	hash := commit(t, root, map[string]string{"a": "1"})
	err := export(t.Context(), root, hash, t.TempDir(), "bundle")
	assert.ErrorContains(t, err, "read bundle of commit "+hash)
}
