package computecluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

var (
	restConfig *rest.Config
	scheme     = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(runWithAPIServer(m))
}

func runWithAPIServer(m *testing.M) int {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, aiplatformv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	api := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join("..", "..", "config", "crd", "bases")}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: 3 * time.Minute,
	}
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
