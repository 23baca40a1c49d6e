package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read writes the SBOM twice, as two builds would, and reads it as any other tool.
func read(t *testing.T, s subject) *spdx.Document {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var first, second bytes.Buffer
	require.NoError(t, write(&first, s))
	require.NoError(t, write(&second, s))
	assert.Equal(t, first.String(), second.String(), "the same input gives the same SBOM")
	document, err := json.Read(&first)
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(document))
	assert.Equal(t, "SPDX-2.3", document.SPDXVersion)
	assert.Equal(t, "2023-11-14T22:13:20Z", document.CreationInfo.Created)
	return document
}

func TestTheSBOMOfAProgramHasEveryModule(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.NotEmpty(t, info.Deps, "this test is linked with modules")

	document := read(t, subject{name: "manager", version: "1.2.3", program: program})
	purls := map[string]string{}
	for _, p := range document.Packages {
		for _, reference := range p.PackageExternalReferences {
			purls[p.PackageName+" "+p.PackageVersion] = reference.Locator
		}
	}
	goVersion := strings.TrimPrefix(runtime.Version(), "go")
	want := map[string]string{"stdlib " + goVersion: "pkg:golang/stdlib@" + goVersion}
	for _, module := range info.Deps {
		want[module.Path+" "+module.Version] = "pkg:golang/" + strings.ToLower(module.Path) + "@" + strings.ReplaceAll(module.Version, "+", "%2B")
	}
	assert.Equal(t, want, purls)
	assert.Equal(t, "manager", document.Packages[0].PackageName)
	assert.Equal(t, "1.2.3", document.Packages[0].PackageVersion)
	assert.Len(t, document.Relationships, len(document.Packages), "the document describes the image, which depends on each module")
}

func TestTheSBOMOfAFolderHasEveryFile(t *testing.T) {
	folder := t.TempDir()
	content := map[string]string{"./manifests/csv.yaml": "a: 1\n", "./metadata/annotations.yaml": "b: 2\n"}
	for path, text := range content {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, path), []byte(text), 0o644))
	}
	document := read(t, subject{name: "bundle", version: "1.2.3", folder: folder})
	sums := map[string]string{}
	for _, file := range document.Files {
		for _, sum := range file.Checksums {
			if sum.Algorithm == common.SHA256 {
				sums[file.FileName] = sum.Value
			}
		}
	}
	want := map[string]string{}
	for path, text := range content {
		sum := sha256.Sum256([]byte(text))
		want[path] = hex.EncodeToString(sum[:])
	}
	assert.Equal(t, want, sums)
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	for name, s := range map[string]subject{
		"no name":     {version: "1", folder: "."},
		"no subject":  {name: "a", version: "1"},
		"both":        {name: "a", version: "1", folder: ".", program: "a"},
		"no program":  {name: "a", version: "1", program: filepath.Join(t.TempDir(), "none")},
		"not Go code": {name: "a", version: "1", program: "main.go"},
	} {
		assert.Error(t, write(&bytes.Buffer{}, s), name)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	assert.ErrorContains(t, write(&bytes.Buffer{}, subject{name: "a", version: "1", folder: "."}), "SOURCE_DATE_EPOCH")
}
