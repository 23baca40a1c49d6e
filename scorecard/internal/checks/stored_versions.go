package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func storedVersions(ctx context.Context, env *cluster.Env) error {
	var all []error
	for _, owned := range env.Bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		all = append(all, storesOneVersion(ctx, env, owned.Name))
	}
	return errors.Join(all...)
}

// storesOneVersion waits, since a migration may still be running after an upgrade.
func storesOneVersion(ctx context.Context, env *cluster.Env, name string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	err := env.Until(ctx, name+" is stored in one version", func(ctx context.Context) (bool, error) {
		if err := env.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
		}
		return slices.Equal(crd.Status.StoredVersions, []string{storageVersion(&crd)}), nil
	})
	if err != nil {
		failed := cluster.Failf("%v: status.storedVersions is %v, the storage version %s", err, crd.Status.StoredVersions, storageVersion(&crd))
		return failed.Try("Let the operator's migration finish: its OperatorCondition says what it waits for.")
	}
	env.Logf("%s: %v", name, crd.Status.StoredVersions)
	return nil
}

func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}
