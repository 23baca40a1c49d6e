package cluster

import (
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const installIt = "Install the operator from its catalog, or with make deploy."

// Deployment is the manager's Deployment, wherever it is. A cluster with none or with several is a Failure.
func (env *Env) Deployment() *appsv1.Deployment {
	name, err := env.Bundle.DeploymentName()
	env.Check(err)
	// Asked for by name: the test's role lets it list no others.
	var found appsv1.DeploymentList
	env.Checkf(env.List(env.Context, &found, client.MatchingFields{"metadata.name": name}), "look for the Deployment %s", name)
	if len(found.Items) == 0 {
		env.Check(Failf("no namespace has a Deployment %s", name).Try(installIt))
	}
	if len(found.Items) > 1 {
		var namespaces []string
		for _, deployment := range found.Items {
			namespaces = append(namespaces, deployment.Namespace)
		}
		env.Check(Failf("the operator is installed in several namespaces: %v", namespaces).
			Try("Remove all but one: several managers work on the same objects."))
	}
	return &found.Items[0]
}

// ClusterServiceVersion is the one that OLM made of the bundle; nil when the operator was not installed by OLM.
func (env *Env) ClusterServiceVersion(namespace string) *operatorsv1alpha1.ClusterServiceVersion {
	var csv operatorsv1alpha1.ClusterServiceVersion
	err := env.Get(env.Context, client.ObjectKey{Namespace: namespace, Name: env.Bundle.CSV.Name}, &csv)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	env.Checkf(err, "read ClusterServiceVersion %s in %s", env.Bundle.CSV.Name, namespace)
	return &csv
}
