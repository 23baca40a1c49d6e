// Package secrets_test plants secrets wherever a TrainingJob may refer to one, drives the manager as a process through
// failures, and looks for them in all that it writes.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package secrets_test

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// server is the API server of the tests.
var server struct {
	client.Client

	config     *rest.Config
	kubeconfig []byte
}

func TestMain(m *testing.M) {
	api := apiserver.New(apiserver.OwnCRDs)
	api.MainStarted(m, func(config *rest.Config) (err error) {
		server.config, server.kubeconfig = config, api.Kubeconfig()
		server.Client, err = client.New(config, client.Options{Scheme: apiserver.Scheme(mlv1.AddToScheme)})
		return err
	})
}
