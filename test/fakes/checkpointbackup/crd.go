// Package checkpointbackup has the CRD of CheckpointBackup for tests.
package checkpointbackup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// Folder of the CRD as it is shipped, for envtest's CRDDirectoryPaths.
func Folder() string {
	return filepath.Join(apiserver.Root(), "config", "checkpoint-agent", "crd")
}

// CRD is the CRD as it is shipped, which serves the named versions only, all when none is named. The first that is served
// is stored.
func CRD(versions ...string) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(filepath.Join(Folder(), "checkpointbackups.yaml"))
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return nil, fmt.Errorf("read the CRD: %w", err)
	}
	if len(versions) == 0 {
		return crd, nil
	}
	var kept []apiextensionsv1.CustomResourceDefinitionVersion
	for _, version := range crd.Spec.Versions {
		if slices.Contains(versions, version.Name) {
			version.Storage = len(kept) == 0
			kept = append(kept, version)
		}
	}
	if len(kept) != len(versions) {
		return nil, fmt.Errorf("the CRD has not all of the versions %v", versions)
	}
	crd.Spec.Versions = kept
	return crd, nil
}
