package checks

import (
	"context"
	"fmt"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func upgradeable(env *cluster.Env) {
	namespace := env.Deployment().Namespace
	csv := env.ClusterServiceVersion(namespace)
	if csv == nil {
		env.Check(cluster.Failf("the operator in %s was not installed by OLM from this bundle: there is no ClusterServiceVersion %s", namespace, env.Bundle.CSV.Name).
			Try("Install it from its catalog, or leave out the tests that need OLM: --selector 'needs!=olm'."))
	}
	// OLM names the OperatorCondition after the ClusterServiceVersion.
	key := client.ObjectKey{Namespace: csv.Namespace, Name: csv.Name}
	var condition operatorsv2.OperatorCondition
	err := env.Until(env.Context, "OperatorCondition "+key.String()+" says Upgradeable=True", func(ctx context.Context) (bool, error) {
		if err := env.Get(ctx, key, &condition); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		// Written by the operator into the spec, taken over by OLM into the status.
		return meta.IsStatusConditionTrue(condition.Spec.Conditions, operatorsv2.Upgradeable) &&
			meta.IsStatusConditionTrue(condition.Status.Conditions, operatorsv2.Upgradeable), nil
	})
	if err != nil {
		env.Check(fmt.Errorf("%w: the operator wrote %s, OLM took over %s", err,
			upgradeableText(condition.Spec.Conditions), upgradeableText(condition.Status.Conditions)))
	}
	env.Logf("OperatorCondition %s: %s", key, upgradeableText(condition.Status.Conditions))
}

func upgradeableText(conditions []metav1.Condition) string {
	found := meta.FindStatusCondition(conditions, operatorsv2.Upgradeable)
	if found == nil {
		return "no condition Upgradeable"
	}
	return fmt.Sprintf("Upgradeable=%s (%s: %s)", found.Status, found.Reason, found.Message)
}
