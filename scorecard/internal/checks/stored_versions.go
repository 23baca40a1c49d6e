package checks

import (
	"context"
	"fmt"
	"slices"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func storedVersions(env *cluster.Env) {
	each(env, env.Bundle.CSV.Spec.CustomResourceDefinitions.Owned, storesOneVersion)
}

// storesOneVersion waits, since a migration may still be running after an upgrade.
func storesOneVersion(kind operatorsv1alpha1.CRDDescription, env *cluster.Env) {
	var crd apiextensionsv1.CustomResourceDefinition
	var stored string
	err := env.Until(env.Context, kind.Name+" is stored in one version", func(ctx context.Context) (bool, error) {
		err := env.Get(ctx, client.ObjectKey{Name: kind.Name}, &crd)
		if err == nil {
			stored, err = apihelpers.GetCRDStorageVersion(&crd)
		}
		if err != nil {
			return false, fmt.Errorf("read CustomResourceDefinition %s: %w", kind.Name, err)
		}
		return slices.Equal(crd.Status.StoredVersions, []string{stored}), nil
	})
	if err != nil {
		failed := cluster.Failf("%v: status.storedVersions is %v, the storage version %s", err, crd.Status.StoredVersions, stored)
		env.Check(failed.Try("Let the operator's migration finish: its OperatorCondition says what it waits for."))
	}
	env.Logf("%s: %v", kind.Name, crd.Status.StoredVersions)
}
