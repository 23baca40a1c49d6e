package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The release workflow takes its notes from the section of a version.
func TestTheChangelogHasEachRelease(t *testing.T) {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	var catalog struct {
		Releases []struct{ Version, Date, Commit string }
	}
	readYAML(t, "catalog/releases.yaml", &catalog)
	require.NotEmpty(t, catalog.Releases)
	for _, release := range catalog.Releases {
		if release.Commit == "" { // what is being worked on is under Unreleased
			continue
		}
		assert.Contains(t, string(changelog), "\n## ["+release.Version+"] - "+release.Date+"\n")
	}
	assert.Contains(t, string(changelog), "\n## [Unreleased]\n")
}

// Dependabot takes a module, a package of npm or a Dockerfile only from the folders that it is told.
func TestDependabotKnowsEveryModule(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	readYAML(t, ".github/dependabot.yml", &config)
	listed, found := map[string][]string{}, map[string][]string{}
	for _, update := range config.Updates {
		listed[update.Ecosystem] = append(listed[update.Ecosystem], update.Directories...)
	}
	files := map[string]string{"go.mod": "gomod", "package.json": "npm", "pyproject.toml": "pip", "Dockerfile": "docker"}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && strings.HasPrefix(name, ".") && path != "." && name != ".devcontainer" {
			return fs.SkipDir
		}
		if ecosystem := files[name]; ecosystem != "" {
			found[ecosystem] = append(found[ecosystem], filepath.Join("/", filepath.Dir(path)))
		}
		return nil
	}))
	for ecosystem, folders := range found {
		assert.Subset(t, listed[ecosystem], folders, ecosystem)
		assert.Empty(t, slices.DeleteFunc(listed[ecosystem], func(f string) bool { return slices.Contains(folders, f) }), "%s: folders without any", ecosystem)
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}
