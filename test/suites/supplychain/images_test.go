// Package supplychain_test checks what images are built of, that they are reproducible, and that known vulnerabilities are looked for.
package supplychain_test

import (
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

var (
	from   = regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)(?: AS (\S+))?$`)
	syntax = regexp.MustCompile(`(?m)^# syntax=(\S+)$`)
	pinned = regexp.MustCompile(`^[a-z0-9./-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}$`)
)

// dockerfiles are those of images that are built on others. The bundle's has no base. That of the catalog is opm of the pinned version,
// whose digest the release workflow resolves.
var dockerfiles = []string{"Dockerfile", "scorecard/Dockerfile", "workers/training/Dockerfile", ".devcontainer/Dockerfile"}

func TestBaseImagesArePinnedByDigest(t *testing.T) {
	for _, path := range dockerfiles {
		text := file(t, path)
		bases := from.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, bases, path)
		stages := map[string]bool{"${BASE}": strings.Contains(text, "\nARG BASE=debian\n")}
		for _, base := range append(bases, syntax.FindAllStringSubmatch(text+"\n", -1)...) {
			if !stages[base[1]] {
				assert.Regexp(t, pinned, base[1], path)
			}
			if len(base) > 2 {
				stages[base[2]] = true
			}
		}
	}
	assert.NotRegexp(t, from, strings.ReplaceAll(file(t, "bundle.Dockerfile"), "FROM scratch\n", ""))
}

func TestTheReleaseResolvesTheDigestOfOPM(t *testing.T) {
	assert.Regexp(t, `(?m)^ARG OPM_IMAGE=quay.io/operator-framework/opm:v[0-9.]+$`, file(t, "catalog.Dockerfile"))
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run  string
				With struct{ File, BuildArgs string }
			}
		}
	}
	text := strings.ReplaceAll(file(t, ".github/workflows/release.yml"), "build-args:", "buildArgs:")
	require.NoError(t, yaml.Unmarshal([]byte(text), &workflow))
	resolved := false
	for _, step := range workflow.Jobs["publish"].Steps {
		resolved = resolved || strings.Contains(step.Run, "imagetools inspect") && strings.Contains(step.Run, "catalog.Dockerfile")
		if step.With.File == "catalog.Dockerfile" {
			assert.True(t, resolved, "the digest is resolved before the catalog is built")
			assert.Equal(t, "OPM_IMAGE=${{ steps.opm.outputs.image }}", step.With.BuildArgs)
			return
		}
	}
	assert.Fail(t, "the release builds no catalog")
}

// Both ways to build the manager's image give the same, with a compiler that go.mod takes.
func TestTheManagersImageHasOneBase(t *testing.T) {
	var ko struct{ DefaultBaseImage string }
	require.NoError(t, yaml.Unmarshal([]byte(file(t, ".ko.yaml")), &ko))
	assert.Contains(t, file(t, "Dockerfile"), "\nFROM "+ko.DefaultBaseImage+"\n")

	wanted := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(file(t, "go.mod"))[1]
	for _, path := range []string{"Dockerfile", "scorecard/Dockerfile", ".devcontainer/Dockerfile"} {
		compiler := regexp.MustCompile(`golang:([0-9.]+)`).FindStringSubmatch(file(t, path))[1]
		assert.GreaterOrEqual(t, version.Compare("go"+compiler, "go"+wanted), 0, "%s has Go %s, go.mod needs %s", path, compiler, wanted)
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}
