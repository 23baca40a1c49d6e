package child

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// FieldOwner is the manager of the fields that the operator writes.
const FieldOwner = client.FieldOwner("spot-training-operator")

// ErrLeftover says that an object of the name of a new child belongs to an earlier owner of the same name, or is being deleted. It
// goes soon; then the child can be created.
var ErrLeftover = errors.New("an object of an earlier owner of this name is still being deleted")

// Writer creates and deletes the children of an owner.
type Writer struct {
	// Client writes the children.
	Client client.Client
	// Direct reads from the API server what the cache may not have.
	Direct client.Reader
	// FieldOwner is the manager of the fields that are written; empty: FieldOwner of this package.
	FieldOwner client.FieldOwner
}

func (w Writer) fieldOwner() client.FieldOwner { return cmp.Or(w.FieldOwner, FieldOwner) }

// Create creates a child, whose controller is its owner. It returns the existing object when the owner has it already, for example
// because the cache did not show it. Errors: ErrLeftover; *Refusal when the API server does not accept the child, or another owner has
// an object of its name. In a namespace that is being deleted nothing is created, and there is no error: the owner goes with it.
func (w Writer) Create(ctx context.Context, owner, child client.Object) (existing client.Object, err error) {
	err = w.Client.Create(ctx, outOfBackups(child), w.fieldOwner())
	what := w.describe(child)
	switch {
	case err == nil:
		log.FromContext(ctx).V(verbosity(child)).Info("Created "+w.kindOf(child), "child", child.GetName())
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return w.existing(ctx, owner, child)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil
	}
	if refusal := RefusalOf(err, what); refusal != nil {
		return nil, refusal
	}
	return nil, fmt.Errorf("create %s: %w", what, err)
}

// existing reads the object that has the name of a new child.
func (w Writer) existing(ctx context.Context, owner, child client.Object) (client.Object, error) {
	found := child.DeepCopyObject().(client.Object)
	err := w.Direct.Get(ctx, client.ObjectKeyFromObject(child), found)
	if apierrors.IsNotFound(err) {
		return nil, w.leftover(child)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", w.describe(child), err)
	}
	return found, w.Check(owner, child, found)
}

// Check says whether an existing object can be the child of an owner. A claim may outlive its owner: one without an owner that has the
// labels of the child is used. Errors: ErrLeftover, *Refusal.
func (w Writer) Check(owner, child, existing client.Object) error {
	if metav1.IsControlledBy(existing, owner) {
		if existing.GetDeletionTimestamp() != nil {
			return w.leftover(existing)
		}
		return nil
	}
	of := metav1.GetControllerOf(existing)
	if _, claim := existing.(*corev1.PersistentVolumeClaim); claim && of == nil &&
		equality.Semantic.DeepDerivative(child.GetLabels(), existing.GetLabels()) {
		return nil
	}
	if of != nil && of.Kind == w.kindOf(owner) && of.Name == owner.GetName() {
		return w.leftover(existing)
	}
	return &Refusal{Reason: reasons.ObjectConflict, Message: fmt.Sprintf(
		"%s exists and does not belong to this %s: delete or rename it, or give the %[2]s another name", w.describe(existing), w.kindOf(owner))}
}

func (w Writer) leftover(object client.Object) error {
	return fmt.Errorf("%s: %w", w.describe(object), ErrLeftover)
}

// Delete deletes the object that was seen, not one of the same name that came after it, and what it owns in the background. It does not
// wait for finalizers. It is no error when the object is gone.
func (w Writer) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	uid := object.GetUID()
	options = append([]client.DeleteOption{
		client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground),
	}, options...)
	err := w.Client.Delete(ctx, object.DeepCopyObject().(client.Object), options...)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", w.describe(object), err)
	}
	log.FromContext(ctx).V(verbosity(object)).Info("Deleted "+w.kindOf(object), "child", object.GetName())
	return nil
}

// verbosity at which the log says that an object was created or deleted: what only serves those that run is of interest to debugging.
func verbosity(object client.Object) int {
	switch object.(type) {
	case *corev1.ServiceAccount, *corev1.ConfigMap, *corev1.Secret, *corev1.Service, *corev1.PersistentVolumeClaim, *networkingv1.NetworkPolicy,
		*rbacv1.Role, *rbacv1.RoleBinding:
		return 1
	default:
		return 0
	}
}

// Merge sets fields of the object that was seen, by a merge patch. Like Delete it passes over an object that is gone.
func (w Writer) Merge(ctx context.Context, object client.Object, fields map[string]any) error {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = object.GetUID()
	fields["metadata"] = metadata
	return w.patch(ctx, object.DeepCopyObject().(client.Object), types.MergePatchType, fields)
}

// patch writes fields of an object by a patch. It passes over an object that was seen and is gone.
func (w Writer) patch(ctx context.Context, object client.Object, how types.PatchType, fields map[string]any, options ...client.PatchOption) error {
	what, done := "patch", "Patched "
	if how == types.ApplyPatchType {
		what, done = "apply", "Applied "
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode %s: %w", w.describe(object), err)
	}
	err = w.Client.Patch(ctx, object, client.RawPatch(how, patch), append(options, w.fieldOwner())...)
	switch {
	case object.GetUID() != "" && isGone(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s %s: %w", what, w.describe(object), err)
	}
	log.FromContext(ctx).V(1).Info(done+w.kindOf(object), "child", object.GetName())
	return nil
}

// isGone says whether an error tells that the object that was seen is gone. When another has its name, a deletion with the UID as its
// precondition is a conflict, and a patch with the UID would change what is immutable.
func isGone(err error) bool {
	if apierrors.IsInvalid(err) {
		cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
		return ok && cause.Field == "metadata.uid"
	}
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}

// Labels are fields for Merge.
func Labels(labels map[string]string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": labels}}
}

func (w Writer) describe(object client.Object) string {
	return w.kindOf(object) + " " + object.GetName()
}

func (w Writer) kindOf(object client.Object) string {
	gvk, err := apiutil.GVKForObject(object, w.Client.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", object)
	}
	return gvk.Kind
}

// When to reconcile again after errors that pass by themselves.
const (
	retryConflict = 10 * time.Millisecond
	retryLeftover = 500 * time.Millisecond
)

// RetryAfter says whether an error passes by itself, and when to reconcile again: another writer changed the object, which the cache will
// show soon, or an object that must go first is still being deleted.
func RetryAfter(err error) (time.Duration, bool) {
	switch {
	case apierrors.IsConflict(err):
		return retryConflict, true
	case errors.Is(err, ErrLeftover):
		return retryLeftover, true
	}
	return 0, false
}
