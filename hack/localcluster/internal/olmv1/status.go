package olmv1

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/manifest"
)

var (
	catalogs   = schema.GroupVersionResource{Group: "olm.operatorframework.io", Version: "v1", Resource: "clustercatalogs"}
	extensions = catalogs.GroupVersion().WithResource("clusterextensions")
)

// condition is something that holds when OLM v1 is ready.
type condition struct {
	what  string
	check func(context.Context) error
}

func (o *OLMv1) conditions() []condition {
	ready := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return manifest.DeploymentReady(ctx, o.kube, Namespace, name) }
	}
	return []condition{
		{"catalogd is ready", ready("catalogd-controller-manager")},
		{"operator-controller is ready", ready("operator-controller-controller-manager")},
	}
}

// Installed reports whether the kinds of OLM v1 are known to the API server.
func (o *OLMv1) Installed(ctx context.Context) (bool, error) {
	for _, resource := range []schema.GroupVersionResource{catalogs, extensions} {
		_, err := o.objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// Status prints how OLM v1 is, its catalogs, and the operators that are installed. It returns false when it is not
// installed or not ready.
func (o *OLMv1) Status(ctx context.Context) (ready bool, err error) {
	out := o.Cluster.Out
	installed, err := o.Installed(ctx)
	if err != nil {
		return false, err
	}
	if !installed {
		fmt.Fprintln(out, "OLM v1 is not installed: localcluster olmv1 up")
		return false, nil
	}
	for _, table := range []manifest.Table{
		{Title: "CATALOG\tIMAGE\tSERVING", Resource: catalogs, Columns: []manifest.Column{
			manifest.Field("spec", "source", "image", "ref"), manifest.Condition("Serving"),
		}},
		{Title: "EXTENSION\tPACKAGE\tBUNDLE\tINSTALLED\tPROGRESSING", Resource: extensions, Columns: []manifest.Column{
			manifest.Field("spec", "source", "catalog", "packageName"), manifest.Field("status", "install", "bundle", "name"),
			manifest.Condition("Installed"), manifest.Condition("Progressing"),
		}},
	} {
		if err := table.Print(ctx, o.objects, out); err != nil {
			return false, err
		}
	}
	for _, condition := range o.conditions() {
		if err := condition.check(ctx); err != nil {
			fmt.Fprintf(out, "not ready: not true that %s: %v\n%s\n", condition.what, err, manifest.Explain(ctx, o.kube, Namespace))
			return false, nil
		}
	}
	fmt.Fprintln(out, "ready")
	return true, nil
}

// Down removes OLM v1 with all catalogs and the operators that it installed; with an operator go the kinds that it
// brought and their objects. It is no error when there is nothing to remove.
func (o *OLMv1) Down(ctx context.Context) error {
	begin := time.Now()
	installed, err := o.Installed(ctx)
	if err != nil {
		return err
	}
	if installed {
		// While OLM v1 still runs, which takes down what it made for them, and removes its finalizers.
		for _, kind := range []string{"clusterextensions.olm.operatorframework.io", "clustercatalogs.olm.operatorframework.io"} {
			if _, err := o.Cluster.Kubectl(ctx, nil, "delete", kind, "--all", "--ignore-not-found", "--timeout=120s"); err != nil {
				return fmt.Errorf("delete what OLM v1 installed: %w", err)
			}
		}
	}
	v := values{Namespace: Namespace, Servers: []server{{Name: "catalogd"}, {Name: "operator-controller"}}}
	var problems []error
	for _, name := range []string{"webhook.yaml", "install.yaml"} {
		content, err := manifest.Render(templates, "templates/"+name, v)
		if err == nil {
			err = manifest.Delete(ctx, o.Cluster, content)
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	crds, err := o.crds(ctx)
	if err != nil {
		return err
	}
	if err := manifest.DeleteFiles(ctx, o.Cluster, crds...); err != nil {
		return fmt.Errorf("delete the kinds of OLM v1: %w", err)
	}
	fmt.Fprintf(o.Cluster.Out, "OLM v1 removed in %s\n", time.Since(begin).Round(100*time.Millisecond))
	return nil
}
