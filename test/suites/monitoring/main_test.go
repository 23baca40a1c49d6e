// Package monitoring_test checks what the operator ships for Prometheus and Grafana with the real Prometheus: promtool
// checks and tests the rules, and a Prometheus that scrapes the real manager evaluates them and answers every query of
// the dashboards.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used. The commands
// prometheus and promtool are those of the path, of any version since Debian 12's.
package monitoring_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const root = "../../.."

var assets = apiserver.Binaries()

func TestMain(m *testing.M) {
	for _, needed := range []string{"prometheus", "promtool", filepath.Join(assets, "kube-apiserver")} {
		if _, err := exec.LookPath(needed); err != nil {
			fmt.Fprintf(os.Stderr, "these tests need %s: run `make test`, which installs it, or set PATH and KUBEBUILDER_ASSETS\n", needed)
			os.Exit(1)
		}
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// rules is config/prometheus/rules.yaml.
type rules struct {
	Spec struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readRules(t *testing.T) rules {
	t.Helper()
	text, err := os.ReadFile(root + "/config/prometheus/rules.yaml")
	require.NoError(t, err)
	var object rules
	require.NoError(t, yaml.Unmarshal(text, &object))
	return object
}

func (r rules) alerts() (all []alert) {
	for _, group := range r.Spec.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// write makes the file that Prometheus itself reads: what the Prometheus operator makes of the object.
func (r rules) write(t *testing.T, folder string) string {
	t.Helper()
	text, err := yaml.Marshal(r.Spec)
	require.NoError(t, err)
	path := filepath.Join(folder, "rules.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

func promtool(t *testing.T, folder string, arguments ...string) {
	t.Helper()
	command := exec.Command("promtool", arguments...)
	command.Dir = folder
	output, err := command.CombinedOutput()
	require.NoError(t, err, "promtool %s\n%s", strings.Join(arguments, " "), output)
}
