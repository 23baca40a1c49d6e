package child

import (
	"context"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Ensure makes a child what is wanted. When live is nil it creates the child. Otherwise it applies labels, owners and the fields that the
// operator keeps for the kind, when the live object lacks one of them; what others added stays. An object that is being deleted is left
// alone: a call after it is gone creates it again. Errors: those of Create, and ErrLeftover when the live object could not be changed
// into what is wanted and was deleted, to be created again.
func (w Writer) Ensure(ctx context.Context, owner, want, live client.Object) error {
	if live == nil {
		existing, err := w.Create(ctx, owner, want)
		if err != nil || existing == nil {
			return err
		}
		live = existing // the cache does not show it, for example because it lost the label by which the cache selects
	}
	if live.GetDeletionTimestamp() != nil {
		return nil
	}
	if err := w.Check(owner, want, live); err != nil {
		return err
	}
	if !HasDrifted(want, live) {
		return nil
	}
	fields, _ := keptFields(want, live)
	target := want.DeepCopyObject().(client.Object)
	target.SetUID(live.GetUID())
	err := w.Apply(ctx, target, fields)
	if apierrors.IsInvalid(err) && isReplaceable(want) {
		if err := w.Delete(ctx, live); err != nil {
			return err
		}
		return ErrLeftover
	}
	return err
}

// HasDrifted says whether a live child lacks something of what is wanted. What others added to it is theirs.
func HasDrifted(want, live client.Object) bool {
	_, same := keptFields(want, live)
	return !same || !equality.Semantic.DeepDerivative(want.GetLabels(), live.GetLabels()) ||
		!equality.Semantic.DeepDerivative(want.GetOwnerReferences(), live.GetOwnerReferences())
}

// Apply sets the labels and owners of an object, and fields besides metadata, by server-side apply, whichever client owned them before. Fields that
// were applied earlier and are missing now are removed. The object then has what the API server returned. With a UID it passes over an
// object that is gone; without one it creates it, or takes over another of the name: see Check.
func (w Writer) Apply(ctx context.Context, object client.Object, fields map[string]any) error {
	gvk, err := apiutil.GVKForObject(object, w.Client.Scheme())
	if err != nil {
		return fmt.Errorf("apply %T %s: %w", object, object.GetName(), err)
	}
	fields = maps.Clone(fields)
	if fields == nil {
		fields = map[string]any{}
	}
	fields["apiVersion"], fields["kind"] = gvk.GroupVersion().String(), gvk.Kind
	metadata := map[string]any{"name": object.GetName(), "labels": object.GetLabels(), "ownerReferences": object.GetOwnerReferences()}
	if namespace := object.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	if uid := object.GetUID(); uid != "" {
		metadata["uid"] = uid
	}
	fields["metadata"] = metadata
	return w.patch(ctx, object, types.ApplyPatchType, fields, client.ForceOwnership)
}

// keptFields are the fields of a child that are kept as wanted, and whether a live object has them. A cache may have stripped a live
// object of all others.
func keptFields(want, live client.Object) (fields map[string]any, same bool) {
	derives, equal := equality.Semantic.DeepDerivative, equality.Semantic.DeepEqual
	switch want := want.(type) {
	case *batchv1.Job:
		// The rest of a Job cannot be changed, and must not be: another version of the operator may build it differently.
		is := live.(*batchv1.Job).Spec
		return map[string]any{"spec": map[string]any{"parallelism": want.Spec.Parallelism, "completions": want.Spec.Completions}},
			equal(want.Spec.Parallelism, is.Parallelism) && equal(want.Spec.Completions, is.Completions)
	case *corev1.Service:
		// A selector is one value: with one more label it selects other pods.
		is := live.(*corev1.Service).Spec
		return map[string]any{"spec": want.Spec}, derives(want.Spec, is) && maps.Equal(want.Spec.Selector, is.Selector)
	case *corev1.ConfigMap:
		return map[string]any{"data": want.Data}, derives(want.Data, live.(*corev1.ConfigMap).Data)
	case *corev1.ServiceAccount:
		return map[string]any{"automountServiceAccountToken": want.AutomountServiceAccountToken},
			equal(want.AutomountServiceAccountToken, live.(*corev1.ServiceAccount).AutomountServiceAccountToken)
	case *networkingv1.NetworkPolicy:
		// One more rule would admit others. Users write a policy of their own for them: policies add up.
		return map[string]any{"spec": want.Spec}, equal(want.Spec, live.(*networkingv1.NetworkPolicy).Spec)
	case *rbacv1.ClusterRole:
		return map[string]any{"rules": want.Rules}, equal(want.Rules, live.(*rbacv1.ClusterRole).Rules)
	case *rbacv1.ClusterRoleBinding:
		return map[string]any{"roleRef": want.RoleRef, "subjects": want.Subjects},
			equal(want.Subjects, live.(*rbacv1.ClusterRoleBinding).Subjects)
	case *unstructured.Unstructured:
		spec := want.Object["spec"]
		return map[string]any{"spec": spec}, derives(spec, live.(*unstructured.Unstructured).Object["spec"])
	}
	return nil, true
}

// isReplaceable says whether an object that cannot be changed into what is wanted may be deleted and created again. A Service cannot when
// another writer added a port of the same name, and some versions of PodGroups are immutable.
func isReplaceable(want client.Object) bool {
	switch want.(type) {
	case *corev1.Service, *unstructured.Unstructured:
		return true
	}
	return false
}
