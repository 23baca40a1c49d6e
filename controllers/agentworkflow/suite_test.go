package agentworkflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// api is the API server that the tests of the whole controller share. The first of them starts it.
var api struct {
	once   sync.Once
	env    *envtest.Environment
	config *rest.Config
	scheme *runtime.Scheme
	err    error
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // errors are part of several tests, and would only hide what failed
	code := m.Run()
	if api.env != nil {
		if err := api.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}
	os.Exit(code)
}

// startAPI returns how to reach the API server.
func startAPI(t *testing.T) (*rest.Config, *runtime.Scheme) {
	t.Helper()
	api.once.Do(func() { api.err = launchAPI() })
	require.NoError(t, api.err)
	return api.config, api.scheme
}

func launchAPI() error {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join("..", "..", ".localcluster", "bin")
	}
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(assets, program)); err != nil {
			return fmt.Errorf("these tests need a real API server: %w: run `make test`, which builds etcd and kube-apiserver, "+
				"or set KUBEBUILDER_ASSETS to a folder that has both", err)
		}
	}
	api.scheme = runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, aiplatformv1alpha1.AddToScheme} {
		if err := add(api.scheme); err != nil {
			return err
		}
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: 3 * time.Minute,
	}
	config, err := env.Start()
	if err != nil {
		return fmt.Errorf("start the API server of %s: %w", assets, err)
	}
	config.QPS = -1
	api.env, api.config = env, config
	return nil
}

// patience bounds every wait.
const patience = 60 * time.Second

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return happened(), nil })
	require.NoError(t, err, "%s did not happen", what)
}
