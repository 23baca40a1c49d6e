// Package rbac_test holds the manager's permissions to what it needs. It runs the manager as its ServiceAccount on a real
// API server, with the roles that an installation makes, through everything that the manager does (the scenarios), and
// compares the API server's audit log with the roles: nothing was refused, and nothing is granted that was never used.
//
// A controller that calls the API server in a new place gets a scenario (scenarios_test.go); a test says so when it is
// missing. What is granted for a reason that leaves no trace in the log stands in exceptions_test.go.
//
// KUBEBUILDER_ASSETS is the folder of etcd, kube-apiserver, kube-controller-manager and kubectl; without it that of the
// local cluster is used.
package rbac_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const root = "../../.."

// assets is the folder of the control plane's programs.
var assets = apiserver.Binaries()

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		if _, err := os.Stat(filepath.Join(assets, program)); err != nil {
			fmt.Fprintf(os.Stderr, "these tests need a real control plane: %v: run `make test`, which builds it, "+
				"or set KUBEBUILDER_ASSETS to a folder that has it\n", err)
			os.Exit(1)
		}
	}
	flag.Parse()
	// The scenarios wait more than they work: as many as there are go on at a time, however few processors there are.
	if err := flag.Set("test.parallel", strconv.Itoa(4*len(scenarios))); err != nil {
		panic(err) // go test has this flag
	}
	os.Exit(m.Run())
}

// run runs a command and returns what it prints.
func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), program, args...)
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
