// Package olmv1 runs the second generation of the Operator Lifecycle Manager in a live cluster: catalogd, which
// serves catalogs, and operator-controller, which installs operators from them.
package olmv1

import (
	"context"
	"embed"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/manifest"
)

//go:embed templates
var templates embed.FS

// Namespace is where both programs run and keep their records.
const Namespace = "olmv1-system"

// OLMv1 is the second generation of OLM in one cluster, which may or may not be installed.
type OLMv1 struct {
	Cluster cluster.Cluster
	kube    kubernetes.Interface
	objects dynamic.Interface
}

// New returns the OLM v1 of a running cluster. It fails for simulated nodes, on which no operator would run.
func New(c cluster.Cluster) (*OLMv1, error) {
	if c.Options.Simulate {
		return nil, fmt.Errorf("OLM v1 needs a node that runs pods: %w", cluster.ErrSimulated)
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	return &OLMv1{Cluster: c, kube: kube, objects: objects}, err
}

// values is what the templates may use.
type values struct {
	Namespace                      string
	CatalogdImage, ControllerImage string
	// CA is the certificate of the authority of Servers, as PEM.
	CA      string
	Servers []server
	// RegistriesConf and Policy are the configuration of the containers/image library.
	RegistriesConf, Policy string
}

// server is one of the two programs with its certificate and key, as PEM.
type server struct{ Name, Certificate, Key string }

// Up builds, loads and starts OLM v1 and returns when operators can be installed. What is there already stays as it is.
func (o *OLMv1) Up(ctx context.Context) error {
	begin := time.Now()
	c := o.Cluster
	if err := c.Builder().Ensure(ctx, component.For(component.OLMv1)); err != nil {
		return err
	}
	starting := time.Now()
	crds, err := o.crds(ctx)
	if err != nil {
		return err
	}
	if err := manifest.ApplyKinds(ctx, c, crds...); err != nil {
		return fmt.Errorf("make the kinds of OLM v1: %w", err)
	}
	version, err := c.Layout.Version("operator-controller")
	if err != nil {
		return err
	}
	v, err := o.values(ctx, version)
	if err != nil {
		return err
	}
	if err := o.apply(ctx, "install.yaml", v); err != nil {
		return err
	}
	for _, condition := range o.conditions() {
		if err := c.WaitFor(ctx, condition.what, condition.check, func(ctx context.Context) string {
			return manifest.Explain(ctx, o.kube, Namespace)
		}); err != nil {
			return err
		}
	}
	if err := o.apply(ctx, "webhook.yaml", v); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "OLM v1 (operator-controller %s) ready: %s to start, %s in all\n", strings.TrimPrefix(version, "v"),
		time.Since(starting).Round(100*time.Millisecond), time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// crds returns the files with the kinds of OLM v1.
func (o *OLMv1) crds(ctx context.Context) ([]string, error) {
	dir, err := o.Cluster.Builder().ModuleDir(ctx, component.Named("operator-controller"))
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "config", "base", "*", "crd", "bases", "*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the module in %s has no files with its kinds", dir)
	}
	return files, err
}

// values loads the images into the node and gathers what the templates need.
func (o *OLMv1) values(ctx context.Context, version string) (values, error) {
	v := values{Namespace: Namespace}
	var err error
	for name, reference := range map[string]*string{"catalogd": &v.CatalogdImage, "operator-controller": &v.ControllerImage} {
		*reference, err = o.Cluster.EnsureImage(ctx, "localhost/localcluster/"+name+":"+version, spec(o.Cluster.Layout.Bin, name))
		if err != nil {
			return values{}, err
		}
	}
	if v.RegistriesConf, v.Policy, err = registries(o.Cluster.Layout); err != nil {
		return values{}, err
	}
	v.CA, v.Servers, err = certificates(o.Cluster.Layout.PKI())
	return v, err
}

// spec describes the image of one of the two programs.
func spec(bin, program string) image.Spec {
	return image.Spec{
		Entrypoint: []string{"/" + program}, User: "65532:65532", CACertificates: true, Accounts: true,
		Files: []image.File{{Source: filepath.Join(bin, program), Path: "/" + program, Mode: 0o755}},
	}
}

// apply makes the objects of a template.
func (o *OLMv1) apply(ctx context.Context, name string, v values) error {
	content, err := manifest.Render(templates, "templates/"+name, v)
	if err != nil {
		return err
	}
	return manifest.Apply(ctx, o.Cluster, content)
}
