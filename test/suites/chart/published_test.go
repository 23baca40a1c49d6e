package chart_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/registry"
)

// pack makes a package of a chart, as a release does, and returns its version.
func pack(t *testing.T, chart, folder string) string {
	t.Helper()
	_, err := helm(t, "package", chart, "--destination", folder)
	require.NoError(t, err)
	text, err := helm(t, "show", "chart", chart)
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if version, found := strings.CutPrefix(line, "version: "); found {
			return strings.TrimSpace(version)
		}
	}
	require.Fail(t, "the chart has no version", text)
	return ""
}

// installedFrom installs the chart as docs/install.md says, and checks which version that is.
func (c *cluster) installedFrom(home, version string, args ...string) {
	c.t.Helper()
	_, err := helmAt(c.t, home, append([]string{"install", release, "--kubeconfig", c.kubeconfig, "--namespace", releaseNamespace}, args...)...)
	require.NoError(c.t, err)
	assert.Contains(c.t, c.mustHelm("list"), "spot-training-operator-"+version)
	c.crd(trainingJobs)
	c.mustHelm("uninstall", release)
}

// A published chart is an artifact in a registry, and a file that the index of a chart repository names.
func (c *cluster) installsWhatIsPublished(t *testing.T, next string) {
	folder, home := t.TempDir(), t.TempDir()
	version := pack(t, chart, folder)
	t.Run("from a registry", func(t *testing.T) {
		target := "oci://" + registry.Start(t) + "/dcnlab/charts"
		_, err := helmAt(t, home, "push", filepath.Join(folder, "spot-training-operator-"+version+".tgz"), target, "--plain-http")
		require.NoError(t, err)
		c.in(t).installedFrom(home, version, target+"/spot-training-operator", "--version", version, "--plain-http")
	})
	t.Run("from a repository", func(t *testing.T) {
		// Each release has its index and its chart in a folder of its own. The index of the newest one names all charts.
		server := httptest.NewServer(http.FileServer(http.Dir(folder)))
		defer server.Close()
		index := func(folder string, args ...string) {
			command := exec.CommandContext(t.Context(), root+"/hack/chart-index.sh", append([]string{folder}, args...)...)
			command.Env = append(os.Environ(), "HELM="+helmCommand)
			_, err := output(command)
			require.NoError(t, err)
		}
		index(folder, server.URL)
		newer := filepath.Join(folder, "newer")
		require.NoError(t, os.Mkdir(newer, 0o700))
		latest := pack(t, next, newer)
		index(newer, server.URL+"/newer", filepath.Join(folder, "index.yaml"))

		_, err := helmAt(t, home, "repo", "add", "published", server.URL+"/newer")
		require.NoError(t, err)
		c.in(t).installedFrom(home, latest, "published/spot-training-operator")
		c.in(t).installedFrom(home, version, "published/spot-training-operator", "--version", version)
	})
}
