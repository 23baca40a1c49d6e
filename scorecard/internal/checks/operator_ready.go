package checks

import (
	"context"
	"fmt"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func operatorReady(env *cluster.Env) {
	deployment := env.Deployment()
	env.Logf("Deployment %s/%s has %d of %d replicas available", deployment.Namespace, deployment.Name,
		deployment.Status.AvailableReplicas, ptr.Deref(deployment.Spec.Replicas, 1))
	env.Check(available(deployment))
	csv := env.ClusterServiceVersion(deployment.Namespace)
	if csv == nil {
		env.Logf("the operator was not installed by OLM")
		return
	}
	err := env.Until(env.Context, "ClusterServiceVersion "+csv.Name+" is Succeeded", func(ctx context.Context) (bool, error) {
		err := env.Get(ctx, client.ObjectKeyFromObject(csv), csv)
		return csv.Status.Phase == operatorsv1alpha1.CSVPhaseSucceeded, err
	})
	if err != nil {
		env.Check(fmt.Errorf("%w: it is %s: %s", err, csv.Status.Phase, csv.Status.Message))
	}
	env.Logf("ClusterServiceVersion %s/%s is %s", csv.Namespace, csv.Name, csv.Status.Phase)
}

// available returns what a Deployment lacks; nil when all of its replicas are available and up to date.
func available(deployment *appsv1.Deployment) error {
	want := ptr.Deref(deployment.Spec.Replicas, 1)
	status := &deployment.Status
	name := deployment.Namespace + "/" + deployment.Name
	for _, condition := range status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable && condition.Status != corev1.ConditionTrue {
			return cluster.Failf("Deployment %s is not available: %s", name, condition.Message).
				Try("Look at its pods: kubectl -n " + deployment.Namespace + " describe pods")
		}
	}
	switch {
	case want == 0:
		return cluster.Failf("Deployment %s has 0 replicas", name).Try("Scale it to 1.")
	case status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas < want || status.AvailableReplicas < want:
		return cluster.Failf("Deployment %s has %d of %d replicas available, %d up to date", name, status.AvailableReplicas, want, status.UpdatedReplicas).
			Try("Wait until it is rolled out: kubectl -n " + deployment.Namespace + " rollout status deployment/" + deployment.Name)
	}
	return nil
}
