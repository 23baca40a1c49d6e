// Package olm runs the Operator Lifecycle Manager in a live cluster, in its two generations: v0 and v1. Its operators are
// Deployments from images that are built of the programs in the binary folder, so that nothing comes from a public registry.
package olm

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
)

//go:embed templates
var templates embed.FS

// Service is one generation of OLM in one cluster. It may or may not be installed.
type Service struct {
	generation
	cluster cluster.Cluster
	kube    kubernetes.Interface
}

// generation is what differs between the generations of OLM.
type generation struct {
	// title is its name in messages, command the one in the command line and of its templates.
	title, command string
	namespace      string
	// component has the programs, which use needs, and the CustomResourceDefinitions in files that match crds.
	component string
	use       component.Use
	crds      string
	// resources exist when it is installed.
	resources []schema.GroupVersionResource
	// tables are the arguments of kubectl get for what status prints.
	tables [][]string
	// values loads the images and returns the values of the templates; constants are those that need no images.
	values    func(ctx context.Context, s *Service) (values, error)
	constants values
	// install are the templates that are applied before it is ready, complete those after.
	install, complete []string
	conditions        func(s *Service) []condition
	// Down deletes instances of kinds while OLM still runs, which removes their finalizers; then the objects before, those of
	// the templates remove, OLM's kinds, and the objects after.
	instances, before, remove, after []string
}

type condition struct {
	what  string
	check func(context.Context) error
}

type values struct {
	Namespace string
	// Version is the version without the leading v.
	Version string

	// OperatorNamespace is where operators that serve all namespaces are installed.
	OperatorNamespace  string
	OLMImage, OPMImage string

	CatalogdImage, ControllerImage string
	// CA is the certificate of the authority of Servers, as PEM.
	CA      string
	Servers []server
	// RegistriesConf and Policy configure the containers/image library.
	RegistriesConf, Policy string
}

func open(c cluster.Cluster, g generation) (*Service, error) {
	if c.Options.Simulate {
		return nil, fmt.Errorf("%s needs a node that runs pods: %w", g.title, cluster.ErrSimulated)
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	return &Service{generation: g, cluster: c, kube: kube}, err
}

// Up builds, loads and starts OLM and returns when operators can be installed. It is idempotent.
func (s *Service) Up(ctx context.Context) error {
	begin := time.Now()
	if err := s.cluster.Builder().Ensure(ctx, component.For(s.use)); err != nil {
		return err
	}
	starting := time.Now()
	crds, err := s.crdFiles(ctx)
	if err != nil {
		return err
	}
	// The kinds are created while the images are loaded: both take seconds and neither needs the other.
	kinds := make(chan error, 1)
	go func() { kinds <- s.applyKinds(ctx, crds) }()
	v, err := s.values(ctx, s)
	if err := errors.Join(<-kinds, err); err != nil {
		return err
	}
	if err := s.kubectl(ctx, s.install, v, "apply", "--server-side", "--force-conflicts"); err != nil {
		return err
	}
	for _, condition := range s.conditions(s) {
		if err := s.cluster.WaitFor(ctx, condition.what, condition.check, s.explain); err != nil {
			return err
		}
	}
	if err := s.kubectl(ctx, s.complete, v, "apply", "--server-side", "--force-conflicts"); err != nil {
		return err
	}
	fmt.Fprintf(s.cluster.Out, "%s %s ready: %s to start, %s in all\n", s.title, v.Version, since(starting), since(begin))
	return nil
}

// Down removes OLM with its catalogs and the operators that it installed. It is idempotent.
func (s *Service) Down(ctx context.Context) error {
	begin := time.Now()
	installed, err := s.Installed()
	if err != nil {
		return err
	}
	if installed {
		for _, kinds := range s.instances {
			if err := s.delete(ctx, kinds, "--all", "--all-namespaces"); err != nil {
				return fmt.Errorf("delete what %s installed: %w", s.title, err)
			}
		}
	}
	if err := s.delete(ctx, s.before...); err != nil {
		return err
	}
	if err := s.kubectl(ctx, s.remove, s.constants, "delete", "--ignore-not-found", "--timeout=120s"); err != nil {
		return err
	}
	crds, err := s.crdFiles(ctx)
	if err != nil {
		return err
	}
	if err := s.delete(ctx, crds...); err != nil {
		return fmt.Errorf("delete the kinds of %s: %w", s.title, err)
	}
	if err := s.delete(ctx, s.after...); err != nil {
		return err
	}
	fmt.Fprintf(s.cluster.Out, "%s removed in %s\n", s.title, since(begin))
	return nil
}

// Status prints whether OLM is ready, its catalogs and the operators that are installed. It returns false when OLM is not
// installed or not ready.
func (s *Service) Status(ctx context.Context) (ready bool, err error) {
	out := s.cluster.Out
	installed, err := s.Installed()
	if err != nil {
		return false, err
	}
	if !installed {
		fmt.Fprintf(out, "%s is not installed: localcluster %s up\n", s.title, s.command)
		return false, nil
	}
	for _, table := range s.tables {
		text, err := s.cluster.Kubectl(ctx, nil, append([]string{"get", "--all-namespaces"}, table...)...)
		if err != nil {
			return false, err
		}
		fmt.Fprint(out, text)
	}
	for _, condition := range s.conditions(s) {
		if err := condition.check(ctx); err != nil {
			fmt.Fprintf(out, "not ready: not true that %s: %v\n%s\n", condition.what, err, s.explain(ctx))
			return false, nil
		}
	}
	fmt.Fprintln(out, "ready")
	return true, nil
}

// Installed reports whether the API server serves OLM's kinds.
func (s *Service) Installed() (bool, error) {
	for _, resource := range s.resources {
		if served, err := discovery.IsResourceEnabled(s.kube.Discovery(), resource); err != nil || !served {
			return false, err
		}
	}
	return true, nil
}

// version is that of the component, without the leading v.
func (s *Service) version(component string) (string, error) {
	version, err := s.cluster.Layout.Version(component)
	return strings.TrimPrefix(version, "v"), err
}

func (s *Service) crdFiles(ctx context.Context) ([]string, error) {
	dir, err := s.cluster.Builder().ModuleDir(ctx, component.Named(s.component))
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, s.crds))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the module in %s has no files %s", dir, s.crds)
	}
	for i, file := range files {
		files[i] = "--filename=" + file
	}
	return files, err
}

func (s *Service) applyKinds(ctx context.Context, files []string) error {
	if _, err := s.cluster.Kubectl(ctx, nil, append([]string{"apply", "--server-side", "--force-conflicts"}, files...)...); err != nil {
		return fmt.Errorf("create the kinds of %s: %w", s.title, err)
	}
	_, err := s.cluster.Kubectl(ctx, nil, append([]string{"wait", "--for=condition=Established", "--timeout=60s"}, files...)...)
	return err
}

// kubectl runs a command of kubectl on the objects of each of the templates.
func (s *Service) kubectl(ctx context.Context, names []string, v values, args ...string) error {
	for _, name := range names {
		content, err := s.render(name, v)
		if err != nil {
			return err
		}
		if _, err := s.cluster.Kubectl(ctx, bytes.NewReader(content), append(args, "-f", "-")...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) delete(ctx context.Context, args ...string) error {
	if len(args) == 0 {
		return nil
	}
	_, err := s.cluster.Kubectl(ctx, nil, append([]string{"delete", "--ignore-not-found", "--timeout=120s"}, args...)...)
	return err
}

func (g generation) render(name string, v values) ([]byte, error) {
	return cluster.Render(templates, "templates/"+g.command+"/"+name, v)
}

func since(begin time.Time) time.Duration { return time.Since(begin).Round(100 * time.Millisecond) }
