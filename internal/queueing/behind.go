package queueing

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// lookAgain is how often a cache that is behind is looked at, and askAgain how long before the API server is asked again.
const lookAgain, askAgain = 100 * time.Millisecond, time.Second

// catchUp waits until the manager's cache has each job and each queue as they are now, or newer. One that has just started, or taken the
// lead over, may have a cache that is behind, and would give away places that jobs have.
func (s *Service) catchUp(ctx context.Context) error {
	kinds := []client.Object{&aiplatformv1alpha1.AIJobQueue{}}
	for _, of := range s.sources {
		kinds = append(kinds, of.Object)
	}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, s.mgr.GetScheme())
		if err != nil {
			return fmt.Errorf("find the kind of %T: %w", kind, err)
		}
		if err := catchUpWith(ctx, s.mgr.GetCache(), s.mgr.GetAPIReader(), kind, gvk); err != nil {
			return err
		}
	}
	return nil
}

// catchUpWith waits until a cache has the objects of a kind as the API server has them when the wait begins, or newer. Those that it still
// lacks after a while may be gone: the API server is asked again. Its error is that of the context.
func catchUpWith(ctx context.Context, cached, direct client.Reader, kind client.Object, gvk schema.GroupVersionKind) error {
	return wait.PollUntilContextCancel(ctx, lookAgain, true, func(ctx context.Context) (bool, error) {
		var now metav1.PartialObjectMetadataList
		now.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := direct.List(ctx, &now); err != nil {
			logger.Info("Waits for a list of all objects, to see whether the cache is behind", "kind", gvk.Kind, "err", err.Error())
			return false, nil
		}
		err := wait.PollUntilContextTimeout(ctx, lookAgain, askAgain, true, func(ctx context.Context) (bool, error) {
			now.Items = slices.DeleteFunc(now.Items, func(is metav1.PartialObjectMetadata) bool { return has(ctx, cached, kind, &is) })
			return len(now.Items) == 0, nil
		})
		return err == nil, nil
	})
}

// has says whether a cache has an object as it is, or newer, or never has it: that of some namespaces returns an error for those of others.
func has(ctx context.Context, cached client.Reader, kind client.Object, is *metav1.PartialObjectMetadata) bool {
	found := kind.DeepCopyObject().(client.Object)
	if err := cached.Get(ctx, client.ObjectKeyFromObject(is), found, client.UnsafeDisableDeepCopy); err != nil {
		return !apierrors.IsNotFound(err)
	}
	order, err := resourceversion.CompareResourceVersion(found.GetResourceVersion(), is.ResourceVersion)
	return err != nil || order >= 0 // what cannot be compared is taken as it is
}
