// Package secrets_test plants secrets wherever a TrainingJob may refer to one, drives the manager as a process through
// failures, and looks for them in all that it writes.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const root = "../../.."

// server is the API server of the tests.
var server struct {
	client.Client

	config     *rest.Config
	kubeconfig []byte
}

func TestMain(m *testing.M) {
	os.Exit(runWithAPIServer(m))
}

func runWithAPIServer(m *testing.M) int {
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{root + "/config/crd/bases"}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: 3 * time.Minute,
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		environment.BinaryAssetsDirectory, _ = filepath.Abs(root + "/.localcluster/bin")
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	if err := start(environment); err != nil {
		fmt.Fprintln(os.Stderr, "start an API server with the CRDs:", err)
		return 1
	}
	return m.Run()
}

func start(environment *envtest.Environment) (err error) {
	if server.config, err = environment.Start(); err != nil {
		return err
	}
	server.config.QPS = -1 // no client-side limit
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mlv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if server.Client, err = client.New(server.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	user, err := environment.AddUser(envtest.User{Name: "manager", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	server.kubeconfig, err = user.KubeConfig()
	return err
}
