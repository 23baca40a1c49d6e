//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workerImage is the image that the deployed operator gives to workers by default.
func workerImage(t *testing.T) string {
	t.Helper()
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: operatorNamespace, Name: "spot-training-operator-controller-manager"}
	require.NoError(t, cluster.Get(t.Context(), key, &deployment))
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if variable.Name == "RELATED_IMAGE_TRAINING_WORKER" {
			return variable.Value
		}
	}
	t.Fatal("the operator's Deployment names no worker image")
	return ""
}

func managerPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &pods, client.InNamespace(operatorNamespace),
		client.MatchingLabels{"control-plane": "controller-manager"}))
	return pods.Items
}

func restrictedPod() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000), FSGroup: ptr.To[int64](1000),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func restrictedContainer() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
