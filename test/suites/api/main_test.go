// Package api_test checks the custom resources as a real API server sees them: what it accepts, what it rejects and
// with which words, and what it knows to tell about every field.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package api_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const (
	root      = "../../.."
	crdFolder = root + "/config/crd/bases"
	samples   = root + "/config/samples"

	// seedNamespace is the namespace that an example of the seeds names.
	seedNamespace = "ml-training"
)

var (
	scheme     = apiserver.Scheme(mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)
	restConfig *rest.Config
	k8s        client.Client
)

func TestMain(m *testing.M) {
	apiserver.New(apiserver.OwnCRDs).MainStarted(m, start)
}

func start(config *rest.Config) (err error) {
	restConfig = config
	if k8s, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seedNamespace}}
	return k8s.Create(context.Background(), namespace)
}
