// Package api_test checks the custom resources as a real API server sees them: what it accepts, what it rejects and
// with which words, and what it knows to tell about every field.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package api_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const (
	root       = "../../.."
	crdFolder  = root + "/config/crd/bases"
	samples    = root + "/config/samples"
	localTools = root + "/.localcluster/bin"

	// seedNamespace is the namespace that an example of the seeds names.
	seedNamespace = "ml-training"
)

var (
	scheme     = runtime.NewScheme()
	restConfig *rest.Config
	k8s        client.Client
)

func TestMain(m *testing.M) {
	os.Exit(runWithAPIServer(m))
}

func runWithAPIServer(m *testing.M) int {
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{crdFolder}, ErrorIfCRDPathMissing: true}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		environment.BinaryAssetsDirectory, _ = filepath.Abs(localTools)
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
	if restConfig, err = environment.Start(); err != nil {
		return err
	}
	restConfig.QPS = -1 // no client-side limit
	if k8s, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seedNamespace}}
	return k8s.Create(context.Background(), namespace)
}
