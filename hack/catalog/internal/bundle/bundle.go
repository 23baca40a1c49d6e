// Package bundle reads an OLM bundle from a folder and makes its image.
package bundle

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
)

// Folder is the bundle's folder, from the repository's top folder.
const Folder = "bundle"

// Bundle is an OLM bundle in a folder.
type Bundle struct {
	folder string
	labels map[string]string
}

// Open reads the bundle of a release from folder. It is an error when the bundle is another version's.
func Open(folder string, release releases.Release) (Bundle, error) {
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := readYAML(filepath.Join(folder, "metadata", "annotations.yaml"), &metadata); err != nil {
		return Bundle{}, err
	}
	if len(metadata.Annotations) == 0 {
		return Bundle{}, fmt.Errorf("%s/metadata/annotations.yaml has no annotations: run make bundle", folder)
	}
	var csv struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			Version string `json:"version"`
		} `json:"spec"`
	}
	path := filepath.Join(folder, "manifests", releases.Package+".clusterserviceversion.yaml")
	if err := readYAML(path, &csv); err != nil {
		return Bundle{}, err
	}
	if csv.Metadata.Name != release.BundleName() || csv.Spec.Version != release.Version {
		return Bundle{}, fmt.Errorf("the bundle is %s (version %s), not %s: %w", csv.Metadata.Name, csv.Spec.Version, release.BundleName(), remedy(release))
	}
	return Bundle{folder: folder, labels: metadata.Annotations}, nil
}

// remedy says what to do about a bundle of the wrong version.
func remedy(release releases.Release) error {
	if release.Commit == "" {
		return errors.New("run make bundle")
	}
	return fmt.Errorf("record another commit in %s", releases.File)
}

// Labels are the labels of the bundle's image, by which OLM's tools find what is in it. bundle.Dockerfile has the same.
func (b Bundle) Labels() map[string]string { return maps.Clone(b.labels) }

func readYAML(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
