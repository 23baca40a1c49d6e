package builders

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// AllowSpotInstances has a namespace be allowed to have spot instances, as a cluster administrator does.
func AllowSpotInstances(t testing.TB, c client.Client, namespace string) {
	t.Helper()
	patch := `{"metadata":{"labels":{"` + spotv1alpha1.LabelSpotInstances + `":"` + spotv1alpha1.SpotInstancesAllowed + `"}}}`
	patchNamespace(t, c, namespace, patch)
}

// ForbidSpotInstances takes that back.
func ForbidSpotInstances(t testing.TB, c client.Client, namespace string) {
	t.Helper()
	patchNamespace(t, c, namespace, `{"metadata":{"labels":{"`+spotv1alpha1.LabelSpotInstances+`":null}}}`)
}

func patchNamespace(t testing.TB, c client.Client, namespace, patch string) {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}
