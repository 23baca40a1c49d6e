package olm

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/manifest"
)

var (
	csvs          = schema.GroupVersionResource{Group: "operators.coreos.com", Version: "v1alpha1", Resource: "clusterserviceversions"}
	subscriptions = csvs.GroupVersion().WithResource("subscriptions")
	catalogs      = csvs.GroupVersion().WithResource("catalogsources")
	apiServices   = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// packageService is the aggregated API that the package server serves.
const packageService = "v1.packages.operators.coreos.com"

// wait waits until operators can be installed and packages be listed.
func (o *OLM) wait(ctx context.Context) error {
	for _, condition := range o.conditions() {
		if err := o.Cluster.WaitFor(ctx, condition.what, condition.check, func(ctx context.Context) string {
			return manifest.Explain(ctx, o.kube, Namespace)
		}); err != nil {
			return err
		}
	}
	return nil
}

// condition is something that holds when OLM is ready.
type condition struct {
	what  string
	check func(context.Context) error
}

func (o *OLM) conditions() []condition {
	return []condition{
		{"catalog-operator is ready", o.deploymentReady("catalog-operator")},
		{"olm-operator is ready", o.deploymentReady("olm-operator")},
		{"the package server is installed", o.packageServerInstalled},
		{"the API of packages is served", o.packagesServed},
	}
}

func (o *OLM) deploymentReady(name string) func(context.Context) error {
	return func(ctx context.Context) error { return manifest.DeploymentReady(ctx, o.kube, Namespace, name) }
}

func (o *OLM) packageServerInstalled(ctx context.Context) error {
	csv, err := o.objects.Resource(csvs).Namespace(Namespace).Get(ctx, "packageserver", metav1.GetOptions{})
	if err != nil {
		return err
	}
	phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
	if phase != "Succeeded" {
		message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
		return fmt.Errorf("its ClusterServiceVersion is in phase %q: %s", phase, message)
	}
	return nil
}

func (o *OLM) packagesServed(ctx context.Context) error {
	service, err := o.objects.Resource(apiServices).Get(ctx, packageService, metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, each := range conditions {
		if c, ok := each.(map[string]any); ok && c["type"] == "Available" {
			if c["status"] == "True" {
				return nil
			}
			return fmt.Errorf("%s is not available: %v", packageService, c["message"])
		}
	}
	return errors.New(packageService + " has not been looked at yet")
}

// Installed reports whether OLM's kinds are known to the API server.
func (o *OLM) Installed(ctx context.Context) (bool, error) {
	_, err := o.objects.Resource(csvs).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
