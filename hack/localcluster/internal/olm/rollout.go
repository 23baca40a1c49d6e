package olm

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deploymentReady checks that all pods of a Deployment have its present template and are available.
func (s *Service) deploymentReady(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		deployment, err := s.kube.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return rolledOut(deployment)
	}
}

// says checks that the first field of an object is as wanted; the others say why it is not.
func (s *Service) says(want, object, fields string) func(context.Context) error {
	return func(ctx context.Context) error {
		text, err := s.cluster.Kubectl(ctx, nil, "get", "--namespace="+s.namespace, object, "--output=jsonpath="+fields)
		if err == nil && !strings.HasPrefix(text, want+":") {
			err = fmt.Errorf("%s: want %s, is %q", object, want, text)
		}
		return err
	}
}

func rolledOut(d *appsv1.Deployment) error {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation {
		return fmt.Errorf("the controller has not observed the change of %s yet", d.Name)
	}
	if s.UpdatedReplicas < want || s.AvailableReplicas < want || s.Replicas > want {
		return fmt.Errorf("%d of %d pods of %s are ready", min(s.AvailableReplicas, s.UpdatedReplicas), want, d.Name)
	}
	return nil
}
