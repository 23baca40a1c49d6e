package olm

import (
	"context"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

const v1Namespace = "olmv1-system"

var (
	catalogs   = schema.GroupVersionResource{Group: "olm.operatorframework.io", Version: "v1", Resource: "clustercatalogs"}
	extensions = catalogs.GroupVersion().WithResource("clusterextensions")
)

// v1 is catalogd, which serves catalogs, and operator-controller, which installs operators from them. Its removal also
// deletes the kinds that operators brought, with their objects.
var v1 = generation{
	title: "OLM v1", command: "olmv1", namespace: v1Namespace, component: "operator-controller", use: component.OLMv1,
	crds:      "config/base/*/crd/bases/*.yaml",
	resources: []schema.GroupVersionResource{catalogs, extensions},
	tables: [][]string{
		{"clustercatalogs", `--output=custom-columns=CATALOG:.metadata.name,IMAGE:.spec.source.image.ref,SERVING:.status.conditions[?(@.type=="Serving")].reason`},
		{"clusterextensions", "--output=custom-columns=EXTENSION:.metadata.name,PACKAGE:.spec.source.catalog.packageName,BUNDLE:.status.install.bundle.name," +
			`INSTALLED:.status.conditions[?(@.type=="Installed")].reason,PROGRESSING:.status.conditions[?(@.type=="Progressing")].reason`},
	},
	values: v1Values, constants: values{Namespace: v1Namespace, Servers: []server{{Name: "catalogd"}, {Name: "operator-controller"}}},
	install: []string{"install.yaml"}, complete: []string{"webhook.yaml"},
	conditions: func(s *Service) []condition {
		return []condition{
			{"catalogd is ready", s.deploymentReady("catalogd-controller-manager")},
			{"operator-controller is ready", s.deploymentReady("operator-controller-controller-manager")},
		}
	},
	instances: []string{"clusterextensions.olm.operatorframework.io", "clustercatalogs.olm.operatorframework.io"},
	remove:    []string{"webhook.yaml", "install.yaml"},
}

type server struct{ Name, Certificate, Key string }

// NewV1 returns the OLM v1 of a running cluster. It fails for simulated nodes, on which no operator would run.
func NewV1(c cluster.Cluster) (*Service, error) { return open(c, v1) }

// v1Values loads the images into the node and gathers what the templates need.
func v1Values(ctx context.Context, s *Service) (values, error) {
	v := s.constants
	var err error
	if v.Version, err = s.version(s.component); err != nil {
		return v, err
	}
	for name, reference := range map[string]*string{"catalogd": &v.CatalogdImage, "operator-controller": &v.ControllerImage} {
		*reference, err = s.cluster.EnsureImage(ctx, "localhost/localcluster/"+name+":v"+v.Version, v1Image(s.cluster.Layout.Bin, name))
		if err != nil {
			return v, err
		}
	}
	if v.RegistriesConf, v.Policy, err = registries(s.cluster.Layout); err != nil {
		return v, err
	}
	v.CA, v.Servers, err = certificates(s.cluster.Layout.PKI())
	return v, err
}

// v1Image is the image of one of the two programs.
func v1Image(bin, program string) image.Spec {
	return image.Spec{
		Entrypoint: []string{"/" + program}, User: "65532:65532", CACertificates: true, Accounts: true,
		Files: []image.File{{Source: filepath.Join(bin, program), Path: "/" + program, Mode: 0o755}},
	}
}
