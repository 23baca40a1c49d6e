package workerpool

import (
	"context"
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
	"github.com/dcnlab/spot-training-operator/internal/jobservice/kubernetes"
)

var (
	restConfig *rest.Config
	scheme     = runtime.NewScheme()
	// reviews is how the job service asks whose a token is and what he may do.
	reviews *kubernetes.Cluster
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // errors are part of several tests, and would only hide what failed
	os.Exit(runWithAPIServer(m))
}

func runWithAPIServer(m *testing.M) int {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, aiplatformv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	api := &envtest.Environment{
		CRDDirectoryPaths:        []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ControlPlaneStartTimeout: 3 * time.Minute,
	}
	// Tokens for the job service are as good as the API server says that they are.
	api.ControlPlane.GetAPIServer().Configure().Append("api-audiences", "https://kubernetes.default.svc", Audience)
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if reviews, err = kubernetes.NewCluster(restConfig, kubernetes.Options{QPS: -1}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() { _ = reviews.Run(ctx) }()
	return m.Run()
}
