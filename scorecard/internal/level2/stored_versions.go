package level2

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

func storedVersions() suite.Test {
	return suite.Test{
		Name:     "level2-stored-versions",
		Suite:    Suite,
		Question: "Are all objects of every kind stored in its present storage version, so that the next version may drop an older one?",
		Run: func(ctx context.Context, l *lab.Lab) error {
			var all []error
			for _, owned := range l.Bundle.CSV.Spec.CustomResourceDefinitions.Owned {
				all = append(all, storesOneVersion(ctx, l, owned.Name))
			}
			return errors.Join(all...)
		},
	}
}

// storesOneVersion waits, since a migration may still be running after an upgrade.
func storesOneVersion(ctx context.Context, l *lab.Lab, name string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	err := l.Until(ctx, name+" is stored in one version", func(ctx context.Context) (bool, error) {
		if err := l.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
		}
		return slices.Equal(crd.Status.StoredVersions, []string{storageVersion(&crd)}), nil
	})
	if err != nil {
		failed := verdict.Failf("%v: status.storedVersions is %v, the storage version %s", err, crd.Status.StoredVersions, storageVersion(&crd))
		return failed.Try("Let the operator's migration finish: its OperatorCondition says what it waits for.")
	}
	l.Logf("%s: %v", name, crd.Status.StoredVersions)
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
