package rbac_test

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultNamespace is where the operator is installed.
const defaultNamespace = "spot-training-operator-system"

// installation is what one way of installing the operator makes.
type installation struct {
	namespace string
	// objects are all of them but the Deployment.
	objects []client.Object
	// deployment runs the manager.
	deployment appsv1.DeploymentSpec
	// byOLM are what OLM makes for its own purposes, not from rules of ours, and environment what it adds to the manager's.
	byOLM       []client.Object
	environment []string
}

// serviceAccount is the name of the manager's ServiceAccount.
func (i *installation) serviceAccount() string { return i.deployment.Template.Spec.ServiceAccountName }

// arguments are those of the manager.
func (i *installation) arguments() []string { return i.deployment.Template.Spec.Containers[0].Args }

// user is who the manager is to the API server.
func (i *installation) user() string {
	return "system:serviceaccount:" + i.namespace + ":" + i.serviceAccount()
}

// installations are the ways to install the operator that have roles of their own. The Helm chart has those of config/,
// which its own tests hold.
func installations(t *testing.T) map[string]*installation {
	t.Helper()
	all := map[string]*installation{"config": fromKustomize(t)}
	bundles, err := filepath.Glob(root + "/bundle/manifests/*.clusterserviceversion.yaml")
	require.NoError(t, err)
	for _, file := range bundles {
		all["bundle"] = fromBundle(t, file)
	}
	return all
}

func fromKustomize(t *testing.T) *installation {
	t.Helper()
	text, err := run(t, filepath.Join(assets, "kubectl"), "kustomize", root+"/config/default")
	require.NoError(t, err)
	return fromManifests(t, defaultNamespace, text)
}

func fromManifests(t *testing.T, namespace, text string) *installation {
	t.Helper()
	i := &installation{namespace: namespace}
	for _, object := range decode(t, text) {
		if object.GetKind() == "Deployment" {
			var deployment appsv1.Deployment
			convert(t, object.Object, &deployment)
			i.deployment = deployment.Spec
			continue
		}
		i.objects = append(i.objects, object)
	}
	require.NotEmpty(t, i.serviceAccount(), "config/default has no Deployment")
	return i
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func convert(t *testing.T, from map[string]any, into any) {
	t.Helper()
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(from, into))
}
