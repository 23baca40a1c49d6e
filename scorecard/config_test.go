package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/checks"
)

const (
	configFolder = "../config/scorecard"
	csvBase      = "../config/manifests/bases/spot-training-operator.clusterserviceversion.yaml"
	generatedCSV = "../bundle/manifests/spot-training-operator.clusterserviceversion.yaml"

	generatedConfig = "../bundle/tests/scorecard/config.yaml"

	// image is what the patches name in place of the operator's own image.
	image   = "operator"
	program = "/scorecard"
)

// read reads a YAML file into the value.
func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), path)
}

// listed are the tests of config/scorecard, by the stage in which they run.
func listed(t *testing.T) map[string][]v1alpha3.TestConfiguration {
	t.Helper()
	var kustomization struct {
		Patches []struct{ Path string }
	}
	read(t, filepath.Join(configFolder, "kustomization.yaml"), &kustomization)
	stages := map[string][]v1alpha3.TestConfiguration{}
	for _, patch := range kustomization.Patches {
		var operations []struct {
			Op, Path string
			Value    v1alpha3.TestConfiguration
		}
		read(t, filepath.Join(configFolder, patch.Path), &operations)
		for _, operation := range operations {
			require.Equal(t, "add", operation.Op, patch.Path)
			stages[operation.Path] = append(stages[operation.Path], operation.Value)
		}
	}
	return stages
}

func TestListedTestsExistAndAreLabelledAsTheySay(t *testing.T) {
	byName := map[string]checks.Test{}
	for _, test := range checks.All() {
		byName[test.Name] = test
	}
	count := 0
	for path, tests := range listed(t) {
		for _, entry := range tests {
			if entry.Image != image {
				assert.Equal(t, "scorecard-test", entry.Entrypoint[0])
				continue
			}
			count++
			require.Len(t, entry.Entrypoint, 2)
			name := entry.Entrypoint[1]
			test, ok := byName[name]
			if !assert.True(t, ok, "the program has no test %s", name) {
				continue
			}
			delete(byName, name) // a second entry would run it twice
			want := map[string]string{"suite": test.Suite(), "test": test.Name}
			if test.NeedsOLM {
				want["needs"] = "olm"
			}
			assert.Equal(t, program, entry.Entrypoint[0], name)
			assert.Equal(t, want, entry.Labels, name)
			stage := "/stages/0/tests/-"
			if test.Timeout > checks.DefaultTimeout {
				stage = "/stages/1/tests/-" // those that train run one by one
			}
			assert.Equal(t, stage, path, name)
		}
	}
	assert.Positive(t, count)
}

// What is shipped is what config/scorecard says, with the images of the bundle's own version.
func TestTheBundleHasTheListedTests(t *testing.T) {
	var shipped v1alpha3.Configuration
	read(t, generatedConfig, &shipped)
	var csv operatorsv1alpha1.ClusterServiceVersion
	read(t, generatedCSV, &csv)
	var names []string
	for _, stage := range shipped.Stages {
		for _, entry := range stage.Tests {
			names = append(names, entry.Entrypoint[1])
			if entry.Entrypoint[0] == program {
				assert.Regexp(t, `^[^/]+/dcnlab/spot-training-operator-scorecard:v`+csv.Spec.Version.String()+`$`, entry.Image)
			}
		}
	}
	assert.ElementsMatch(t, namesListed(t), names)
}

func TestEveryKindHasAListedTest(t *testing.T) {
	names := namesListed(t)
	for _, test := range checks.All() {
		if test.Suite() == "kinds" {
			assert.Contains(t, names, test.Name)
		}
	}
}

func namesListed(t *testing.T) (names []string) {
	t.Helper()
	for _, tests := range listed(t) {
		for _, entry := range tests {
			names = append(names, entry.Entrypoint[1])
		}
	}
	return names
}

// proven is how many of the levels, from the first, have all of their questions asked by tests in the list.
func proven(levels []checks.Level, names []string) int {
	for i, level := range levels {
		missing := slices.ContainsFunc(level.Tests, func(test checks.Test) bool { return !slices.Contains(names, test.Name) })
		if missing || len(level.Missing) > 0 {
			return i
		}
	}
	return len(levels)
}

func TestProven(t *testing.T) {
	a, b := checks.Test{Name: "a"}, checks.Test{Name: "b"}
	ladder := []checks.Level{{Name: "one", Tests: []checks.Test{a}}, {Name: "two", Tests: []checks.Test{b}}, {Name: "three", Missing: []string{"what of this?"}}}

	assert.Equal(t, 0, proven(ladder, nil))
	assert.Equal(t, 1, proven(ladder, []string{"a"}))
	assert.Equal(t, 0, proven(ladder, []string{"b"}), "a level counts only above those below it")
	assert.Equal(t, 2, proven(ladder, []string{"a", "b"}), "a question that no test asks bars its level")
}

func TestTheClaimedCapabilityLevelIsProven(t *testing.T) {
	highest := proven(checks.Levels(), namesListed(t))
	for _, path := range []string{csvBase, generatedCSV} {
		var csv operatorsv1alpha1.ClusterServiceVersion
		read(t, path, &csv)
		claimed := slices.IndexFunc(checks.Levels(), func(l checks.Level) bool { return l.Name == csv.Annotations["capabilities"] }) + 1
		require.Positive(t, claimed, "%s claims the unknown capability level %q", path, csv.Annotations["capabilities"])
		assert.LessOrEqual(t, claimed, highest,
			"%s claims the level %q, but the tests in config/scorecard prove %d levels only", path, csv.Annotations["capabilities"], highest)
	}
}
