package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func kindsServed(ctx context.Context, env *cluster.Env) error {
	owned := env.Bundle.CSV.Spec.CustomResourceDefinitions.Owned
	if len(owned) == 0 {
		return cluster.Failf("ClusterServiceVersion %s owns no CustomResourceDefinition", env.Bundle.CSV.Name)
	}
	var all []error
	for _, description := range owned {
		var crd apiextensionsv1.CustomResourceDefinition
		err := env.Get(ctx, client.ObjectKey{Name: description.Name}, &crd)
		switch {
		case apierrors.IsNotFound(err):
			all = append(all, cluster.Failf("CustomResourceDefinition %s does not exist", description.Name))
			continue
		case err != nil:
			all = append(all, fmt.Errorf("read CustomResourceDefinition %s: %w", description.Name, err))
			continue
		}
		if err := established(&crd); err != nil {
			all = append(all, err)
			continue
		}
		served, err := env.Discovery.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + description.Version)
		if err != nil && !apierrors.IsNotFound(err) {
			all = append(all, fmt.Errorf("ask which kinds %s/%s has: %w", crd.Spec.Group, description.Version, err))
			continue
		}
		all = append(all, serves(served, &crd, description.Kind, description.Version))
		env.Logf("%s %s/%s: established", description.Kind, crd.Spec.Group, description.Version)
	}
	return errors.Join(all...)
}

func established(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, want := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		at := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == want })
		if at < 0 {
			return cluster.Failf("CustomResourceDefinition %s has no condition %s", crd.Name, want)
		}
		if c := crd.Status.Conditions[at]; c.Status != apiextensionsv1.ConditionTrue {
			return cluster.Failf("CustomResourceDefinition %s: %s is %s: %s", crd.Name, want, c.Status, c.Message)
		}
	}
	return nil
}

func serves(list *metav1.APIResourceList, crd *apiextensionsv1.CustomResourceDefinition, kind, version string) error {
	var names []string
	if list != nil {
		for _, resource := range list.APIResources {
			if resource.Kind == kind {
				names = append(names, resource.Name)
			}
		}
	}
	for _, want := range []string{crd.Spec.Names.Plural, crd.Spec.Names.Plural + "/status"} {
		if !slices.Contains(names, want) {
			return cluster.Failf("the API server does not serve %s in %s/%s", want, crd.Spec.Group, version)
		}
	}
	return nil
}
