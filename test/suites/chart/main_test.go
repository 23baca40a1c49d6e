// Package chart_test checks the Helm chart with the helm command: it renders the objects that kustomize builds, every
// value does what it says, wrong values are refused by name, and a release can be installed, upgraded and removed on a
// real API server.
//
// KUBEBUILDER_ASSETS is the folder of etcd, kube-apiserver, kubectl and registry; without it that of the local cluster is used.
// HELM is the helm command; without it .bin/helm, which make builds.
package chart_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const (
	root  = "../../.."
	chart = root + "/charts/spot-training-operator"

	// release and releaseNamespace are those of the tests.
	release          = "trainer"
	releaseNamespace = "trainers"

	// kustomizeNamespace is the namespace of config/.
	kustomizeNamespace = "spot-training-operator-system"
	deploymentName     = "spot-training-operator-controller-manager"
)

var (
	helmCommand = tool("HELM", root+"/.bin/helm")
	assets      = apiserver.Binaries()
)

func tool(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	path, err := filepath.Abs(otherwise)
	if err != nil {
		panic(err) // the working directory is gone
	}
	return path
}

func TestMain(m *testing.M) {
	for _, needed := range []string{helmCommand, filepath.Join(assets, "kubectl"), filepath.Join(assets, "kube-apiserver"), filepath.Join(assets, "registry")} {
		if _, err := os.Stat(needed); err != nil {
			fmt.Fprintf(os.Stderr, "these tests need %s: run `make test`, which builds it, or set HELM and KUBEBUILDER_ASSETS\n", needed)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// helm runs helm with a configuration of the test's own and returns what it prints, and what it says when it fails.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helmAt(t, t.TempDir(), args...)
}

// helmAt is helm with what it keeps in home, such as the repositories that it knows.
func helmAt(t *testing.T, home string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), helmCommand, args...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	return output(command)
}

func output(command *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// render returns the objects that the chart makes with the values, which are arguments of helm template.
func render(t *testing.T, values ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	args := append([]string{"template", release, chart, "--namespace", releaseNamespace, "--kube-version", "1.37.0"}, values...)
	text, err := helm(t, args...)
	require.NoError(t, err)
	return objects(t, text)
}

// kustomize returns the objects that kustomize builds of a folder of config/.
func kustomize(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := output(exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), "kustomize", filepath.Join(root, "config", folder)))
	require.NoError(t, err)
	return objects(t, text)
}

// objects are those in a YAML text, by kind and name.
func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		if len(object.Object) == 0 {
			continue
		}
		id := object.GetKind() + " " + object.GetName()
		require.NotContains(t, found, id, "an object that is there twice")
		found[id] = object
	}
}
