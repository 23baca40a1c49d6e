package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
)

// A repository with two releases in its history and a third in its tree becomes a catalog of three bundles, by the real
// opm. OPM is its path; make test builds it.
func TestCatalogOfThreeReleases(t *testing.T) {
	root := repository(t)
	first := release(t, root, "0.1.0")
	second := release(t, root, "0.2.0")
	put(t, root, releases.VersionFile, "0.3.0\n")
	put(t, root, releases.File, `releases:
- {version: 0.1.0, commit: `+first+`, date: "2026-01-01", channels: [candidate, fast, stable], deprecated: Upgrade to 0.2.0.}
- {version: 0.2.0, commit: `+second+`, date: "2026-02-01", channels: [candidate, fast, stable]}
- {version: 0.3.0, date: "2026-03-01", channels: [candidate]}
`)
	bundleOf(t, root, "0.3.0")
	options := Options{Root: root, Images: "registry.example.com/dcnlab", OPM: opm(t)}
	require.NoError(t, Catalog(t.Context(), options))

	text, err := os.ReadFile(filepath.Join(root, File))
	require.NoError(t, err)
	found := map[string][]string{}
	for _, document := range strings.Split(string(text), "\n---\n") {
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
		assert.Contains(t, string(text), "image: registry.example.com/dcnlab/spot-training-operator-bundle:"+image+"\n")
	}
	assert.NotContains(t, string(text), "127.0.0.1", "the public names must stand in the catalog")

	require.NoError(t, Catalog(t.Context(), options))
	again, err := os.ReadFile(filepath.Join(root, File))
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again), "the same releases must give the same catalog")
}

func TestABundleThatWasNotRegeneratedIsRefused(t *testing.T) {
	root := repository(t)
	bundleOf(t, root, "0.1.0")
	put(t, root, releases.VersionFile, "0.2.0\n")
	put(t, root, releases.File, "releases:\n- {version: 0.2.0, date: \"2026-02-01\", channels: [candidate, fast, stable]}\n")
	err := Catalog(t.Context(), Options{Root: root, Images: "registry.example.com/dcnlab", OPM: "not-needed"})
	assert.EqualError(t, err, "release 0.2.0: the bundle is spot-training-operator.v0.1.0 (version 0.1.0), "+
		"not spot-training-operator.v0.2.0: run make bundle")
	assert.NoFileExists(t, filepath.Join(root, File))
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
	root := t.TempDir()
	git(t, root, "init", "--quiet")
	ignored, err := os.ReadFile("../../../../catalog/.indexignore")
	require.NoError(t, err)
	put(t, root, "catalog/.indexignore", string(ignored))
	put(t, root, "config/manifests/icon.svg", `<svg xmlns="http://www.w3.org/2000/svg"/>`)
	return root
}

// release commits the bundle of a version.
func release(t *testing.T, root, version string) string {
	t.Helper()
	bundleOf(t, root, version)
	git(t, root, "add", "--all")
	git(t, root, "commit", "--quiet", "--message", version)
	return git(t, root, "rev-parse", "HEAD")
}

// bundleOf makes this repository's own bundle that of another version.
func bundleOf(t *testing.T, root, version string) {
	t.Helper()
	_, present, err := releases.Read("../../../..")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "bundle")))
	require.NoError(t, os.CopyFS(filepath.Join(root, "bundle"), os.DirFS("../../../../bundle")))
	path := "bundle/manifests/" + releases.Package + ".clusterserviceversion.yaml"
	csv, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(csv), "operator.v"+present, "operator.v"+version)
	put(t, root, path, strings.ReplaceAll(text, "\n  version: "+present+"\n", "\n  version: "+version+"\n"))
}

func put(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	command := exec.Command("git", append([]string{"-C", root, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	require.NoError(t, err, "git %v", args)
	return strings.TrimSpace(string(output))
}
