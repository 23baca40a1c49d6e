package manifest

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// DeploymentReady returns an error unless the Deployment exists and all its pods are of its present template and
// available.
func DeploymentReady(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	deployment, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return rolledOut(deployment)
}

func rolledOut(d *appsv1.Deployment) error {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation {
		return fmt.Errorf("the change of %s has not been looked at yet", d.Name)
	}
	if s.UpdatedReplicas < want || s.AvailableReplicas < want || s.Replicas > want {
		return fmt.Errorf("%d of %d pods of %s are ready", min(s.AvailableReplicas, s.UpdatedReplicas), want, d.Name)
	}
	return nil
}
