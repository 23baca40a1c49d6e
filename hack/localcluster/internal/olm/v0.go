package olm

import (
	"context"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

// workloadUser is the user of images whose pods do not say which one to run as.
const workloadUser = "1001:1001"

// packageService is the aggregated API that the package server serves.
const packageService = "v1.packages.operators.coreos.com"

// v0 has the names, rights and namespaces of the published installation. After its removal, the kinds that operators
// brought stay, as they do when a Subscription and its ClusterServiceVersion are deleted.
var v0 = generation{
	title: "OLM", command: "olm", namespace: "olm", component: "olm", use: component.OLM, crds: "deploy/chart/crds/*.yaml",
	resources: []schema.GroupVersionResource{{Group: "operators.coreos.com", Version: "v1alpha1", Resource: "clusterserviceversions"}},
	tables: [][]string{
		{"catalogsources", "--output=custom-columns=NAMESPACE:.metadata.namespace,CATALOG:.metadata.name,IMAGE:.spec.image,STATE:.status.connectionState.lastObservedState"},
		{"subscriptions", "--output=custom-columns=NAMESPACE:.metadata.namespace,SUBSCRIPTION:.metadata.name,PACKAGE:.spec.name,CHANNEL:.spec.channel," +
			"INSTALLED:.status.installedCSV,STATE:.status.state"},
		// Copies of an operator in the namespaces that it serves are left out.
		{"clusterserviceversions", "--selector=!olm.copiedFrom",
			"--output=custom-columns=NAMESPACE:.metadata.namespace,OPERATOR:.metadata.name,VERSION:.spec.version,PHASE:.status.phase,REASON:.status.reason"},
	},
	values: v0Values, constants: values{Namespace: "olm", OperatorNamespace: "operators"},
	install: []string{"install.yaml", "objects.yaml"},
	conditions: func(s *Service) []condition {
		return []condition{
			{"catalog-operator is ready", s.deploymentReady("catalog-operator")},
			{"olm-operator is ready", s.deploymentReady("olm-operator")},
			{"the package server is installed", s.says("Succeeded", "clusterserviceversions.operators.coreos.com/packageserver",
				"{.status.phase}: {.status.message}")},
			{"the API of packages is served", s.says("True", "apiservices/"+packageService,
				`{.status.conditions[?(@.type=="Available")].status}: {.status.conditions[?(@.type=="Available")].message}`)},
		}
	},
	instances: []string{"subscriptions.operators.coreos.com,catalogsources.operators.coreos.com,clusterserviceversions.operators.coreos.com"},
	// An aggregated API without a server would keep namespaces from being deleted.
	before: []string{"apiservices", packageService},
	remove: []string{"install.yaml"},
	// The roles that OLM creates for groups of operators have no owner.
	after: []string{"clusterroles,clusterrolebindings", "--selector=olm.owner"},
}

// New returns the OLM v0 of a running cluster. It fails for simulated nodes, on which no operator would run.
func New(c cluster.Cluster) (*Service, error) { return open(c, v0) }

// v0Values loads the images of OLM's pods into the node.
func v0Values(ctx context.Context, s *Service) (values, error) {
	v := s.constants
	bin := s.cluster.Layout.Bin
	busybox, err := host.Busybox(ctx, s.cluster.Out)
	if err != nil {
		return v, err
	}
	if v.Version, err = s.version("olm"); err != nil {
		return v, err
	}
	if v.OLMImage, err = s.cluster.EnsureImage(ctx, "localhost/localcluster/olm:v"+v.Version, olmImage(bin, busybox)); err != nil {
		return v, err
	}
	opm, err := s.version("opm")
	if err != nil {
		return v, err
	}
	v.OPMImage, err = s.cluster.EnsureImage(ctx, "localhost/localcluster/opm:v"+opm, opmImage(bin))
	return v, err
}

// olmImage is the image of OLM's operators. It also holds what they copy into the pods that unpack bundles and catalogs.
func olmImage(bin, busybox string) image.Spec {
	spec := image.Spec{Entrypoint: []string{"/bin/olm"}, User: workloadUser, CACertificates: true, Accounts: true}
	for _, file := range []struct{ program, path string }{
		{"olm-operator", "/bin/olm"}, {"catalog-operator", "/bin/catalog"}, {"package-server", "/bin/package-server"},
		{"cpb", "/bin/cpb"}, {"copy-content", "/bin/copy-content"},
	} {
		spec.Files = append(spec.Files, image.File{Source: filepath.Join(bin, file.program), Path: file.path, Mode: 0o755})
	}
	spec.Files = append(spec.Files, image.File{Source: busybox, Path: "/bin/cp", Mode: 0o755})
	return spec
}

// opmImage is the image with which OLM stores the content of a bundle.
func opmImage(bin string) image.Spec {
	return image.Spec{
		Entrypoint: []string{"/bin/opm"}, User: workloadUser, CACertificates: true, Accounts: true,
		Files: []image.File{
			{Source: filepath.Join(bin, "opm"), Path: "/bin/opm", Mode: 0o755},
			{Source: filepath.Join(bin, "grpc_health_probe"), Path: "/bin/grpc_health_probe", Mode: 0o755},
		},
	}
}
