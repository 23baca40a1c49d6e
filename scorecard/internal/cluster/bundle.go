package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/operator-framework/api/pkg/manifests"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Bundle is the bundle of one version of the operator.
type Bundle struct{ *manifests.Bundle }

// ReadBundle reads the bundle of a folder, in which its manifests lie in manifests/. It returns an error when they cannot be
// read, or have no ClusterServiceVersion.
func ReadBundle(folder string) (Bundle, error) {
	loaded, err := manifests.GetBundleFromDir(filepath.Join(folder, "manifests"))
	if err != nil {
		return Bundle{}, fmt.Errorf("read the bundle in %s: %w", folder, err)
	}
	if loaded == nil || loaded.CSV == nil {
		return Bundle{}, fmt.Errorf("read the bundle in %s: it has no ClusterServiceVersion", folder)
	}
	return Bundle{loaded}, nil
}

// Example is the first example of the kind in the ClusterServiceVersion's annotation alm-examples, without its status; nil when
// there is none.
func (b Bundle) Example(kind string) (*unstructured.Unstructured, error) {
	const annotation = "alm-examples"
	var examples []unstructured.Unstructured
	if err := json.Unmarshal([]byte(b.CSV.Annotations[annotation]), &examples); err != nil {
		return nil, fmt.Errorf("read the annotation %s of ClusterServiceVersion %s: %w", annotation, b.CSV.Name, err)
	}
	for i := range examples {
		if examples[i].GetKind() == kind {
			unstructured.RemoveNestedField(examples[i].Object, "status")
			return &examples[i], nil
		}
	}
	return nil, nil
}

// CRD is the CustomResourceDefinition of the kind; nil when the bundle has none.
func (b Bundle) CRD(kind string) *apiextensionsv1.CustomResourceDefinition {
	for _, crd := range b.V1CRDs {
		if crd.Spec.Names.Kind == kind {
			return crd
		}
	}
	return nil
}

// ObjectsOf returns the bundle's objects of the kind, such as Services.
func (b Bundle) ObjectsOf(kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range b.Objects {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	return found
}

// DeploymentName is the name of the manager's Deployment, which is told from others by its label control-plane. It returns an error
// when the ClusterServiceVersion does not have exactly one.
func (b Bundle) DeploymentName() (string, error) {
	const label, manager = "control-plane", "controller-manager"
	var names []string
	for _, deployment := range b.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		if deployment.Label[label] == manager {
			names = append(names, deployment.Name)
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("ClusterServiceVersion %s has %d deployments with the label %s=%s, want 1", b.CSV.Name, len(names), label, manager)
	}
	return names[0], nil
}
