package checks

import (
	"slices"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func kindsServed(env *cluster.Env) {
	owned := env.Bundle.CSV.Spec.CustomResourceDefinitions.Owned
	if len(owned) == 0 {
		env.Failf("ClusterServiceVersion %s owns no CustomResourceDefinition", env.Bundle.CSV.Name)
	}
	each(env, owned, isServed)
}

func isServed(kind operatorsv1alpha1.CRDDescription, env *cluster.Env) {
	var crd apiextensionsv1.CustomResourceDefinition
	err := env.Get(env.Context, client.ObjectKey{Name: kind.Name}, &crd)
	if apierrors.IsNotFound(err) {
		env.Failf("CustomResourceDefinition %s does not exist", kind.Name)
	}
	env.Checkf(err, "read CustomResourceDefinition %s", kind.Name)
	for _, want := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		found := apihelpers.FindCRDCondition(&crd, want)
		if found == nil {
			env.Failf("CustomResourceDefinition %s has no condition %s", crd.Name, want)
		}
		if found.Status != apiextensionsv1.ConditionTrue {
			env.Failf("CustomResourceDefinition %s: %s is %s: %s", crd.Name, want, found.Status, found.Message)
		}
	}

	version := crd.Spec.Group + "/" + kind.Version
	served, err := env.Discovery.ServerResourcesForGroupVersion(version)
	if !apierrors.IsNotFound(err) {
		env.Checkf(err, "ask which kinds %s has", version)
	}
	var names []string
	if served != nil {
		for _, resource := range served.APIResources {
			if resource.Kind == kind.Kind {
				names = append(names, resource.Name)
			}
		}
	}
	for _, want := range []string{crd.Spec.Names.Plural, crd.Spec.Names.Plural + "/status"} {
		if !slices.Contains(names, want) {
			env.Failf("the API server does not serve %s in %s", want, version)
		}
	}
	env.Logf("%s %s: established", kind.Kind, version)
}
