package level2

import (
	"context"
	"fmt"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/operator"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const upgradeableTest = "level2-upgradeable-condition"

func upgradeable() suite.Test {
	return suite.Test{
		Name:     upgradeableTest,
		Suite:    Suite,
		Question: "Does the operator tell OLM in its OperatorCondition that it can be upgraded now (Upgradeable=True)?",
		NeedsOLM: true,
		Run:      tellsOLM,
	}
}

func tellsOLM(ctx context.Context, l *lab.Lab) error {
	deployment, err := operator.Deployment(ctx, l)
	if err != nil {
		return err
	}
	csv, err := operator.ClusterServiceVersion(ctx, l, deployment.Namespace)
	if err != nil {
		return err
	}
	if csv == nil {
		return verdict.Failf("the operator in %s was not installed by OLM from this bundle: there is no ClusterServiceVersion %s", deployment.Namespace, l.Bundle.CSV.Name).
			Try("Install it from its catalog, or leave out the tests that need OLM: --selector 'needs!=olm'.")
	}
	// OLM names the OperatorCondition after the ClusterServiceVersion.
	key := client.ObjectKey{Namespace: csv.Namespace, Name: csv.Name}
	var condition operatorsv2.OperatorCondition
	err = l.Until(ctx, "OperatorCondition "+key.String()+" says Upgradeable=True", func(ctx context.Context) (bool, error) {
		if err := l.Get(ctx, key, &condition); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		// Written by the operator into the spec, taken over by OLM into the status.
		return meta.IsStatusConditionTrue(condition.Spec.Conditions, operatorsv2.Upgradeable) &&
			meta.IsStatusConditionTrue(condition.Status.Conditions, operatorsv2.Upgradeable), nil
	})
	if err != nil {
		return fmt.Errorf("%w: the operator wrote %s, OLM took over %s", err, tell(condition.Spec.Conditions), tell(condition.Status.Conditions))
	}
	l.Logf("OperatorCondition %s: %s", key, tell(condition.Status.Conditions))
	return nil
}

func tell(conditions []metav1.Condition) string {
	found := meta.FindStatusCondition(conditions, operatorsv2.Upgradeable)
	if found == nil {
		return "no condition Upgradeable"
	}
	return fmt.Sprintf("Upgradeable=%s (%s: %s)", found.Status, found.Reason, found.Message)
}
