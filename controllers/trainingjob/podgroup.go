package trainingjob

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// ensureGroup creates the PodGroup of a job's gang, or brings one that an earlier attempt left up to date. PodGroups are
// not watched: their kinds may be missing, and only their creation matters to the pods.
func (r *Reconciler) ensureGroup(ctx context.Context, job *mlv1.TrainingJob, want *unstructured.Unstructured) error {
	is := want.DeepCopy()
	err := r.uncached.Create(ctx, want.DeepCopy(), fieldOwner)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create PodGroup %s: %w", want.GetName(), err)
	}
	if err := r.uncached.Get(ctx, client.ObjectKeyFromObject(want), is); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch owner := metav1.GetControllerOf(is); {
	case is.GetDeletionTimestamp() != nil, owner != nil && owner.Kind == kindTrainingJob && owner.Name == job.Name && owner.UID != job.UID:
		return errLeftover
	case !metav1.IsControlledBy(is, job):
		return &strangerError{kind: "PodGroup", name: want.GetName()}
	case sameGroup(want, is):
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": is.GetUID(), "resourceVersion": is.GetResourceVersion()}, "spec": want.Object["spec"],
	})
	if err != nil {
		return fmt.Errorf("encode PodGroup %s: %w", want.GetName(), err)
	}
	err = r.uncached.Patch(ctx, is, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if apierrors.IsInvalid(err) { // of some versions the contents cannot be changed: it is made anew
		if err := r.deleteGroup(ctx, is); err != nil {
			return err
		}
		return errLeftover
	}
	if err != nil {
		return fmt.Errorf("change PodGroup %s: %w", want.GetName(), err)
	}
	return nil
}

// removeGroup deletes the PodGroup of a job if there is one, and it is the job's.
func (r *Reconciler) removeGroup(ctx context.Context, group *unstructured.Unstructured) error {
	is := group.DeepCopy()
	err := r.uncached.Get(ctx, client.ObjectKeyFromObject(group), is)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read PodGroup %s: %w", group.GetName(), err)
	}
	if owner := metav1.GetControllerOf(is); owner == nil || owner.Kind != kindTrainingJob {
		return nil
	}
	return r.deleteGroup(ctx, is)
}

func (r *Reconciler) deleteGroup(ctx context.Context, is *unstructured.Unstructured) error {
	uid := is.GetUID()
	err := r.uncached.Delete(ctx, is, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete PodGroup %s: %w", is.GetName(), err)
	}
	return nil
}
