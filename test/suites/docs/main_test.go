// Package docs_test holds the documentation to the product: its YAML applies to a real API server that has the CRDs,
// its links lead somewhere, and it names every condition, reason, event and metric of the code.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	root      = "../../.."
	crdFolder = root + "/config/crd/bases"
	// checkpointBackup is the kind that the built-in checkpoint agent brings.
	checkpointBackup = root + "/config/checkpoint-agent/crd"
	localTools       = root + "/.localcluster/bin"
)

var k8s client.Client

func TestMain(m *testing.M) {
	os.Exit(runWithAPIServer(m))
}

func runWithAPIServer(m *testing.M) int {
	environment := &envtest.Environment{
		CRDDirectoryPaths:        []string{crdFolder, checkpointBackup},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: 3 * time.Minute,
		CRDs:                     []*apiextensionsv1.CustomResourceDefinition{crds.CatalogSource(), crds.OperatorGroup(), crds.Subscription()},
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		environment.BinaryAssetsDirectory, _ = filepath.Abs(localTools)
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	config, err := environment.Start()
	if err == nil {
		config.QPS = -1 // no client-side limit
		k8s, err = client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start an API server with the CRDs:", err)
		return 1
	}
	return m.Run()
}
