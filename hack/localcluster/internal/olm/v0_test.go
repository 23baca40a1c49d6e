package olm

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// objects renders a template and returns its objects by kind and name.
func objects(t *testing.T, g generation, name string, v values) map[string]*unstructured.Unstructured {
	t.Helper()
	content, err := g.render(name, v)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, document := range bytes.Split(content, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, document)
		}
		all[object.GetKind()+"/"+object.GetName()] = object
	}
	return all
}

func TestInstallationIsThePublishedOne(t *testing.T) {
	v := v0.constants
	v.Version, v.OLMImage, v.OPMImage = "0.38.0", "localhost/localcluster/olm@sha256:a", "localhost/localcluster/opm@sha256:b"
	install, own := objects(t, v0, "install.yaml", v), objects(t, v0, "objects.yaml", v)
	for _, want := range []string{
		"Namespace/olm", "Namespace/operators", "ServiceAccount/olm-operator-serviceaccount",
		"ClusterRole/system:controller:operator-lifecycle-manager", "Deployment/olm-operator", "Deployment/catalog-operator",
	} {
		if install[want] == nil {
			t.Errorf("no %s", want)
		}
	}
	for _, want := range []string{"OLMConfig/cluster", "OperatorGroup/global-operators", "OperatorGroup/olm-operators", "ClusterServiceVersion/packageserver"} {
		if own[want] == nil {
			t.Errorf("no %s", want)
		}
	}
	if level := install["Namespace/olm"].GetLabels()["pod-security.kubernetes.io/enforce"]; level != "restricted" {
		t.Errorf("namespace olm enforces Pod Security %q, want restricted", level)
	}
	global := own["OperatorGroup/global-operators"]
	if _, limited, _ := unstructured.NestedSlice(global.Object, "spec", "targetNamespaces"); limited {
		t.Error("the group of operators for all namespaces names some")
	}
}

func TestImagesHoldWhatOLMRuns(t *testing.T) {
	bin := t.TempDir()
	paths := map[string]bool{}
	for _, file := range append(olmImage(bin, "/bin/busybox").Files, opmImage(bin).Files...) {
		paths[file.Path] = true
		if file.Mode != 0o755 {
			t.Errorf("%s has mode %o", file.Path, file.Mode)
		}
	}
	// Commands that OLM's own code writes into pods.
	for _, want := range []string{"/bin/olm", "/bin/catalog", "/bin/package-server", "/bin/cp", "/bin/cpb", "/bin/copy-content", "/bin/opm", "/bin/grpc_health_probe"} {
		if !paths[want] {
			t.Errorf("no image holds %s", want)
		}
	}
}

func TestTemplatesNameNoPublicRegistry(t *testing.T) {
	files, err := filepath.Glob("templates/olm/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("templates %v, error %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			if bytes.Contains(line, []byte("image:")) && !bytes.Contains(line, []byte("<< quote")) {
				t.Errorf("%s: image that is not built here: %s", file, line)
			}
		}
	}
}
