package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// A repository with two releases in its history and a third in its tree becomes a catalog of three bundles, rendered by
// the real opm at the path OPM; make test builds it.
func TestCatalogOfThreeReleases(t *testing.T) {
	root := repository(t)
	first := commitBundle(t, root, "0.1.0")
	second := commitBundle(t, root, "0.2.0")
	put(t, root, versionFile, "0.3.0\n")
	put(t, root, releasesFile, `releases:
- {version: 0.1.0, commit: `+first+`, date: "2026-01-01", channels: [candidate, fast, stable], deprecated: Upgrade to 0.2.0.}
- {version: 0.2.0, commit: `+second+`, date: "2026-02-01", channels: [candidate, fast, stable]}
- {version: 0.3.0, date: "2026-03-01", channels: [candidate]}
`)
	putBundle(t, root, "0.3.0")
	r := renderer{root: root, images: "registry.example.com/dcnlab", opm: opm(t)}
	require.NoError(t, r.Render(t.Context()))

	text := contentOf(t, root, catalogFile)
	found := map[string][]string{}
	for _, document := range strings.Split(text, "\n---\n") {
		var blob struct{ Schema, Name string }
		require.NoError(t, yaml.Unmarshal([]byte(document), &blob))
		found[blob.Schema] = append(found[blob.Schema], blob.Name)
	}
	assert.Equal(t, map[string][]string{
		"olm.package":      {"spot-training-operator"},
		"olm.channel":      {"candidate", "fast", "stable"},
		"olm.bundle":       {"spot-training-operator.v0.1.0", "spot-training-operator.v0.2.0", "spot-training-operator.v0.3.0"},
		"olm.deprecations": {""},
	}, found)
	for _, image := range []string{"v0.1.0", "v0.2.0", "v0.3.0"} {
		assert.Contains(t, text, "image: registry.example.com/dcnlab/spot-training-operator-bundle:"+image+"\n")
	}

	require.NoError(t, r.Render(t.Context()))
	assert.Equal(t, text, contentOf(t, root, catalogFile), "the same releases must give the same catalog")
}

func TestABundleOfAnotherVersionIsRefused(t *testing.T) {
	root := repository(t)
	old := commitBundle(t, root, "0.1.0")
	put(t, root, versionFile, "0.2.0\n")
	refused := func(release string) error {
		put(t, root, releasesFile, "releases:\n- {version: 0.2.0, "+release+"date: \"2026-02-01\", channels: [candidate, fast, stable]}\n")
		return renderer{root: root, images: "registry.example.com/dcnlab", opm: "not-needed"}.Render(t.Context())
	}
	assert.EqualError(t, refused(""), "release 0.2.0: the bundle is spot-training-operator.v0.1.0 (version 0.1.0), "+
		"not spot-training-operator.v0.2.0: run make bundle")
	assert.ErrorContains(t, refused("commit: "+old+", "), "record another commit in catalog/releases.yaml")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "bundle")))
	assert.ErrorContains(t, refused(""), "read the bundle")
	assert.NoFileExists(t, filepath.Join(root, catalogFile))
}

func TestABundleWithoutAnnotationsIsRefused(t *testing.T) {
	root := repository(t)
	putBundle(t, root, "0.1.0")
	put(t, root, versionFile, "0.1.0\n")
	put(t, root, releasesFile, "releases:\n- {version: 0.1.0, date: \"2026-02-01\", channels: [candidate, fast, stable]}\n")
	put(t, root, "bundle/metadata/annotations.yaml", "annotations: {}\n")
	r := renderer{root: root, images: "registry.example.com/dcnlab", opm: opm(t)}
	assert.ErrorContains(t, r.Render(t.Context()), "annotations")
	assert.NoFileExists(t, filepath.Join(root, catalogFile))
}

const wantHead = `---
defaultChannel: stable
description: DESCRIPTION
icon:
  base64data: PHN2Zy8+
  mediatype: image/svg+xml
name: spot-training-operator
schema: olm.package
---
entries:
- name: spot-training-operator.v0.1.0
- name: spot-training-operator.v0.2.0
  replaces: spot-training-operator.v0.1.0
name: candidate
package: spot-training-operator
schema: olm.channel
---
entries:
- name: spot-training-operator.v0.1.0
name: fast
package: spot-training-operator
schema: olm.channel
---
entries:
- name: spot-training-operator.v0.1.0
name: stable
package: spot-training-operator
schema: olm.channel
---
entries:
- message: Upgrade to 0.2.0.
  reference:
    name: spot-training-operator.v0.1.0
    schema: olm.bundle
package: spot-training-operator
schema: olm.deprecations
`

func TestHead(t *testing.T) {
	got := head(t, Release{Version: "0.1.0", Channels: Channels(), Deprecated: "Upgrade to 0.2.0."},
		Release{Version: "0.2.0", Channels: []string{Candidate}})
	// The package's description is long and broken into lines.
	before, rest, _ := strings.Cut(got, "description: ")
	_, after, _ := strings.Cut(rest, "\nicon:")
	assert.Equal(t, wantHead, before+"description: DESCRIPTION\nicon:"+after)
}

// olm.deprecations may not be empty.
func TestHeadWithoutDeprecations(t *testing.T) {
	assert.NotContains(t, head(t, Release{Version: "0.1.0", Channels: Channels()}), "olm.deprecations")
}

func head(t *testing.T, releases ...Release) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, iconFile, "<svg/>")
	require.NoError(t, renderer{root: root}.writeHead(List{Releases: releases}, filepath.Join(root, "head.yaml")))
	return contentOf(t, root, "head.yaml")
}

func opm(t *testing.T) string {
	t.Helper()
	path := os.Getenv("OPM")
	if path == "" {
		t.Skip("OPM is not set to the path of opm: run make test, or make catalog and OPM=.bin/opm")
	}
	return path
}

func repository(t *testing.T) string {
	t.Helper()
	root := emptyRepository(t)
	put(t, root, "catalog/.indexignore", contentOf(t, "../..", "catalog/.indexignore"))
	put(t, root, iconFile, `<svg xmlns="http://www.w3.org/2000/svg"/>`)
	return root
}

// commitBundle commits the bundle of a version.
func commitBundle(t *testing.T, root, version string) string {
	t.Helper()
	putBundle(t, root, version)
	return commit(t, root, nil)
}

// putBundle writes this repository's own bundle as that of another version.
func putBundle(t *testing.T, root, version string) {
	t.Helper()
	_, present, err := readReleases("../..")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "bundle")))
	require.NoError(t, os.CopyFS(filepath.Join(root, "bundle"), os.DirFS("../../bundle")))
	path := "bundle/manifests/" + Package + ".clusterserviceversion.yaml"
	text := strings.ReplaceAll(contentOf(t, root, path), "operator.v"+present, "operator.v"+version)
	put(t, root, path, strings.ReplaceAll(text, "\n  version: "+present+"\n", "\n  version: "+version+"\n"))
}
