package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// A kind without a row would be one whose rights are granted without a thought of what they are worth.
func TestTheThreatModelSaysWhatEachRightOnEachKindIsWorth(t *testing.T) {
	model := threatModel(t)
	require.Contains(t, model, "\n| kind | get, list, watch | create | update, patch | delete | patch of `status` |\n")
	kinds := 0
	for _, folder := range []string{crdFolder, checkpointBackup} {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var crd apiextensionsv1.CustomResourceDefinition
			require.NoError(t, yaml.Unmarshal(text, &crd))
			if crd.Spec.Names.Kind == "" {
				continue
			}
			kinds++
			row := regexp.MustCompile(`(?m)^\| ` + crd.Spec.Names.Kind + ` \|(.*)\|$`).FindStringSubmatch(model)
			if assert.NotNil(t, row, "%s has no row", crd.Spec.Names.Kind) {
				cells := strings.Split(row[1], "|")
				assert.Len(t, cells, 5, crd.Spec.Names.Kind)
				for _, cell := range cells {
					assert.NotEmpty(t, strings.TrimSpace(cell), "%s has an empty cell", crd.Spec.Names.Kind)
				}
			}
		}
	}
	assert.Equal(t, 9, kinds)
}

// A test that is renamed or deleted shows no boundary any more.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range declaration.FindAllSubmatch(text, -1) {
			declared[string(match[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(threatModel(t), -1)
	assert.Greater(t, len(named), 20)
	for _, name := range named {
		assert.True(t, declared[name[1]], "no test is called %s", name[1])
	}
}

// Readers learn here what is forbidden, and where an installation lets it pass.
func TestTheThreatModelHasEveryAttackThatIsTried(t *testing.T) {
	suite, err := os.ReadFile(filepath.Join(root, "test", "suites", "attacks", "main_test.go"))
	require.NoError(t, err)
	model := threatModel(t)
	tried := regexp.MustCompile(`(?m)^\t\{(\d+), "([^"]+)",`).FindAllStringSubmatch(string(suite), -1)
	assert.Len(t, tried, 15)
	for _, attack := range tried {
		assert.Contains(t, model, "\n| "+attack[1]+" | "+attack[2]+" | ")
	}
}

func threatModel(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	return string(text)
}
