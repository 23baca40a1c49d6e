package olm

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/manifest"
)

// Down removes OLM with all catalogs, subscriptions and the operators that it installed. The kinds that those
// operators brought and their objects stay, as they do when a Subscription and its ClusterServiceVersion are deleted.
// It is no error when there is nothing to remove.
func (o *OLM) Down(ctx context.Context) error {
	begin := time.Now()
	installed, err := o.Installed(ctx)
	if err != nil {
		return err
	}
	if installed {
		// While OLM still runs: it takes down what it made for them, and removes its finalizers.
		kubectl := []string{"delete", "--all", "--all-namespaces", "--ignore-not-found", "--timeout=120s",
			"subscriptions.operators.coreos.com,catalogsources.operators.coreos.com,clusterserviceversions.operators.coreos.com"}
		if _, err := o.Cluster.Kubectl(ctx, nil, kubectl...); err != nil {
			return fmt.Errorf("delete operators: %w", err)
		}
	}
	// An aggregated API without a server would keep namespaces from being deleted.
	err = o.objects.Resource(apiServices).Delete(ctx, packageService, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	content, err := manifest.Render(templates, "templates/install.yaml", values{Namespace: Namespace, OperatorNamespace: OperatorNamespace})
	if err != nil {
		return err
	}
	if err := manifest.Delete(ctx, o.Cluster, content); err != nil {
		return err
	}
	crds, err := o.crds(ctx)
	if err != nil {
		return err
	}
	if err := manifest.DeleteFiles(ctx, o.Cluster, crds); err != nil {
		return fmt.Errorf("delete OLM's kinds: %w", err)
	}
	// Roles that OLM made for groups of operators have no owner that would take them along.
	if _, err := o.Cluster.Kubectl(ctx, nil, "delete", "clusterroles,clusterrolebindings", "--ignore-not-found", "--selector=olm.owner"); err != nil {
		return fmt.Errorf("delete OLM's roles: %w", err)
	}
	fmt.Fprintf(o.Cluster.Out, "OLM removed in %s\n", time.Since(begin).Round(100*time.Millisecond))
	return nil
}
