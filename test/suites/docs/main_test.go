// Package docs_test holds the documentation to the product: its YAML applies to a real API server that has the CRDs,
// its links lead somewhere, and it names every condition, reason, event and metric of the code.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package docs_test

import (
	"testing"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const (
	root      = "../../.."
	crdFolder = root + "/config/crd/bases"
	// checkpointBackup is the kind that the built-in checkpoint agent brings.
	checkpointBackup = root + "/config/checkpoint-agent/crd"
)

var k8s client.Client

func TestMain(m *testing.M) {
	server := apiserver.New(apiserver.OwnCRDs, apiserver.CRDs(checkpointBackup), func(env *envtest.Environment) {
		env.CRDs = []*apiextensionsv1.CustomResourceDefinition{crds.CatalogSource(), crds.OperatorGroup(), crds.Subscription()}
	})
	server.MainStarted(m, func(config *rest.Config) (err error) {
		k8s, err = client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
		return err
	})
}
