package apiserver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PodConfig returns how a pod that runs on a node reaches the API server: with the token that the kubelet gives it, which is for this pod,
// on this node, with its ServiceAccount. The pod is deleted after the test.
func PodConfig(t testing.TB, admin *rest.Config, namespace, account, node string) *rest.Config {
	t.Helper()
	c, err := client.New(admin, client.Options{})
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: account + "-"},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "operator:1"}},
		},
	}
	require.NoError(t, c.Create(t.Context(), pod))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.Background(), pod, client.GracePeriodSeconds(0))) })
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	require.NoError(t, c.SubResource("token").Create(t.Context(), of, token))
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken, config.QPS = token.Status.Token, -1
	return config
}
