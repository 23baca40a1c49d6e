// Package olm runs the Operator Lifecycle Manager (v0) in a live cluster: its operators as Deployments from images
// that are made of the programs in the binary folder, with the names, rights and namespaces of the published
// installation, but with nothing that would have to come from a public registry.
package olm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/manifest"
)

const (
	// Namespace is where OLM runs and where catalogs for all namespaces are.
	Namespace = "olm"
	// OperatorNamespace is where operators that serve all namespaces are installed.
	OperatorNamespace = "operators"
)

// OLM is the Operator Lifecycle Manager of one cluster, which may or may not be installed.
type OLM struct {
	Cluster cluster.Cluster
	kube    kubernetes.Interface
	objects dynamic.Interface
}

// New returns the OLM of a running cluster. It fails for simulated nodes, on which no operator would run.
func New(c cluster.Cluster) (*OLM, error) {
	if c.Options.Simulate {
		return nil, fmt.Errorf("OLM needs a node that runs pods: %w", cluster.ErrSimulated)
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
	return &OLM{Cluster: c, kube: kube, objects: objects}, err
}

// values is what the templates may use.
type values struct {
	Namespace, OperatorNamespace string
	// Version is OLM's version without the leading v.
	Version            string
	OLMImage, OPMImage string
}

// Up builds, loads and starts OLM and returns when operators can be installed. What is there already stays as it is.
func (o *OLM) Up(ctx context.Context) error {
	begin := time.Now()
	c := o.Cluster
	if err := c.Builder().Ensure(ctx, component.For(component.OLM)); err != nil {
		return err
	}
	starting := time.Now()
	crds, err := o.crds(ctx)
	if err != nil {
		return err
	}
	// The kinds are made while the images are loaded: both take seconds and neither needs the other.
	kinds := make(chan error, 1)
	go func() { kinds <- manifest.ApplyKinds(ctx, c, crds) }()
	v, err := o.images(ctx)
	if err := errors.Join(<-kinds, err); err != nil {
		return err
	}
	for _, name := range []string{"install.yaml", "objects.yaml"} {
		if err := o.apply(ctx, name, v); err != nil {
			return err
		}
	}
	if err := o.wait(ctx); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "OLM %s ready: %s to start, %s in all\n", v.Version,
		time.Since(starting).Round(100*time.Millisecond), time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// crds returns the folder with OLM's own kinds.
func (o *OLM) crds(ctx context.Context) (string, error) {
	dir, err := o.Cluster.Builder().ModuleDir(ctx, component.Named("olm"))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "deploy", "chart", "crds"), nil
}

// apply makes the objects of a template.
func (o *OLM) apply(ctx context.Context, name string, v values) error {
	content, err := manifest.Render(templates, "templates/"+name, v)
	if err != nil {
		return err
	}
	return manifest.Apply(ctx, o.Cluster, content)
}
