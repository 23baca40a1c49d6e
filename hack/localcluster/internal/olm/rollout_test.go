package olm

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRolledOut(t *testing.T) {
	deployment := func(generation int64, replicas *int32, status appsv1.DeploymentStatus) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: generation},
			Spec:       appsv1.DeploymentSpec{Replicas: replicas}, Status: status,
		}
	}
	status := func(observed int64, replicas, updated, available int32) appsv1.DeploymentStatus {
		return appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available}
	}
	for _, test := range []struct {
		name       string
		deployment *appsv1.Deployment
		want       bool
	}{
		{"ready", deployment(1, new(int32(2)), status(1, 2, 2, 2)), true},
		{"one by default", deployment(1, nil, status(1, 1, 1, 1)), true},
		{"none wanted", deployment(1, new(int32(0)), status(1, 0, 0, 0)), true},
		{"new", deployment(1, nil, status(0, 0, 0, 0)), false},
		{"changed, not seen", deployment(2, nil, status(1, 1, 1, 1)), false},
		{"one of two", deployment(1, new(int32(2)), status(1, 2, 2, 1)), false},
		{"only the old pod is available", deployment(2, nil, status(2, 2, 1, 1)), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := rolledOut(test.deployment); (err == nil) != test.want {
				t.Errorf("error %v, want ready: %t", err, test.want)
			}
		})
	}
}
