package nodeagent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

var restConfig *rest.Config

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // errors are part of several tests, and would only hide what failed
	os.Exit(runWithAPIServer(m))
}

func runWithAPIServer(m *testing.M) int {
	api := &envtest.Environment{ControlPlaneStartTimeout: 3 * time.Minute}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		api.BinaryAssetsDirectory, _ = filepath.Abs(filepath.Join("..", "..", ".localcluster", "bin"))
	}
	defer func() {
		if err := api.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	var err error
	if restConfig, err = api.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need a real API server: run `make test`, which builds it, or set KUBEBUILDER_ASSETS "+
			"to a folder with etcd and kube-apiserver:", err)
		return 1
	}
	restConfig.QPS = -1 // no client-side limit
	return m.Run()
}
