package cluster

import (
	"context"
	"fmt"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const installIt = "Install the operator from its catalog, or with make deploy."

// Deployment is the manager's Deployment, wherever it is. A cluster with none or with several is a Failure.
func (env *Env) Deployment(ctx context.Context) (*appsv1.Deployment, error) {
	name, err := env.Bundle.DeploymentName()
	if err != nil {
		return nil, err
	}
	// Asked for by name: the test's role lets it list no others.
	var found appsv1.DeploymentList
	if err := env.List(ctx, &found, client.MatchingFields{"metadata.name": name}); err != nil {
		return nil, fmt.Errorf("look for the Deployment %s: %w", name, err)
	}
	switch len(found.Items) {
	case 0:
		return nil, Failf("no namespace has a Deployment %s", name).Try(installIt)
	case 1:
		return &found.Items[0], nil
	}
	var namespaces []string
	for _, deployment := range found.Items {
		namespaces = append(namespaces, deployment.Namespace)
	}
	return nil, Failf("the operator is installed in several namespaces: %v", namespaces).
		Try("Remove all but one: several managers work on the same objects.")
}

// ClusterServiceVersion is the one that OLM made of the bundle; nil when the operator was not installed by OLM.
func (env *Env) ClusterServiceVersion(ctx context.Context, namespace string) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	var csv operatorsv1alpha1.ClusterServiceVersion
	err := env.Get(ctx, client.ObjectKey{Namespace: namespace, Name: env.Bundle.CSV.Name}, &csv)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ClusterServiceVersion %s in %s: %w", env.Bundle.CSV.Name, namespace, err)
	}
	return &csv, nil
}
