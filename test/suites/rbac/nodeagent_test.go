package rbac_test

import (
	"context"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// nodeAgents has the node agent come with a spot node, be put right, and go with the node. No SpotInstanceVM may be there.
func nodeAgents(w *world) {
	var vms unstructured.UnstructuredList
	vms.SetAPIVersion("training.training.dcnlab.com/v1alpha1")
	vms.SetKind("SpotInstanceVMList")
	require.NoError(w.t, w.List(w.t.Context(), &vms))
	for i := range vms.Items {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), &vms.Items[i])))
	}
	agents := &appsv1.DaemonSet{}
	agents.Namespace, agents.Name = w.installation.Namespace, "spot-training-operator-node-agent"
	w.awaitEnd(agents)

	// OLM cannot install the policy, and does not install the right.
	for _, object := range installations.Files(w.t, w.installation.Namespace, "node-agent/policy.yaml", "node-agent/role.yaml") {
		require.NoError(w.t, client.IgnoreAlreadyExists(w.Create(w.t.Context(), object)))
	}
	w.await("the API server to know the right", func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + agents.Namespace + ":" + agents.Name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"},
		}}
		err := w.Create(ctx, review)
		return review.Status.Allowed, err
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "spot-", Labels: map[string]string{"cloud.google.com/gke-spot": "true"},
	}}
	require.NoError(w.t, w.Create(w.t.Context(), node))
	w.t.Cleanup(func() {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.WithoutCancel(w.t.Context()), node)))
	})
	w.awaitChild(agents, func() bool { return true })
	before := agents.DeepCopy()
	agents.Spec.Template.Spec.Containers[0].Image = "another:1"
	require.NoError(w.t, w.Patch(w.t.Context(), agents, client.MergeFrom(before)))
	w.awaitChild(agents, func() bool { return agents.Spec.Template.Spec.Containers[0].Image != "another:1" })

	require.NoError(w.t, w.Delete(w.t.Context(), node))
	w.awaitEnd(agents)
}
