package storageversion

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

const (
	// maxNamed is how many failed objects an error names.
	maxNamed = 3
	// maxFailuresInARow ends a round: it is the API server then, not the objects.
	maxFailuresInARow = 20
)

// round is one pass over all objects of a kind.
type round struct {
	*Migrator
	crd      string
	resource metadata.Getter

	// listed are the objects in the pages so far; listing runs ahead of writing.
	listed int64
	// now is how far the writing is.
	now            kindProgress
	failuresInARow int64
	problems       []string
}

// rewriteAll has the API server rewrite every object of a kind, and returns how many there were. An object that
// fails does not keep the others from being written.
func (m *Migrator) rewriteAll(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, n need) (int64, error) {
	if n.through == "" {
		return 0, fmt.Errorf("the CRD %s serves no version: its objects can be neither read nor written", crd.Name)
	}
	r := &round{Migrator: m, crd: crd.Name, resource: m.options.Metadata.Resource(schema.GroupVersionResource{
		Group: crd.Spec.Group, Version: n.through, Resource: crd.Spec.Names.Plural,
	})}
	m.options.Progress.update(r.crd, func(kind *kindProgress) { kind.migrated, kind.failed, kind.total = 0, 0, 0 })

	pages := pager.New(r.page)
	pages.PageSize, pages.PageBufferSize = m.options.PageSize, 1
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		object, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("a list of %s holds %T", r.crd, item)
		}
		return r.visit(ctx, object)
	})
	if err != nil {
		return r.now.migrated, fmt.Errorf("go through the objects of %s: %w", r.crd, err)
	}
	if r.now.failed == 0 {
		return r.now.migrated, nil
	}
	text := strings.Join(r.problems, "; ")
	if more := r.now.failed - int64(len(r.problems)); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return r.now.migrated, fmt.Errorf("%d objects of %s failed: %s", r.now.failed, r.crd, text)
}

// page lists some objects. The API server forgets what a list was begun from after some minutes; it then offers to go on
// with what exists now, which is enough here: an object that is new since then is stored in the new version.
func (r *round) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := r.resource.List(ctx, options)
	if goOn := continuation(err); goOn != "" {
		options.Continue = goOn
		list, err = r.resource.List(ctx, options)
	}
	if err != nil {
		return nil, err
	}
	r.listed += int64(len(list.Items))
	total := r.listed + ptr.Deref(list.RemainingItemCount, 0)
	r.options.Progress.update(r.crd, func(kind *kindProgress) { kind.total = total })
	return list, nil
}

// continuation is where to go on with a list that has expired.
func continuation(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// visit rewrites one object and notes the outcome. It returns an error when the round should end.
func (r *round) visit(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := r.rewrite(ctx, object)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.now = r.options.Progress.update(r.crd, func(kind *kindProgress) {
		if err == nil {
			kind.migrated++
		} else {
			kind.failed++
		}
	})
	r.options.Metrics.Remaining(r.crd, max(0, r.now.total-r.now.migrated))
	if err == nil {
		r.failuresInARow = 0
		r.options.Metrics.Migrated(r.crd)
		return nil
	}
	r.failuresInARow++
	name := path.Join(object.Namespace, object.Name)
	if len(r.problems) < maxNamed {
		r.problems = append(r.problems, fmt.Sprintf("%s: %v", name, err))
	}
	r.options.Metrics.Failed(r.crd)
	ctrl.LoggerFrom(ctx).Error(err, "Cannot store an object in the newest version", "crd", r.crd, "object", name)
	if r.failuresInARow >= maxFailuresInARow {
		return fmt.Errorf("%d objects failed in a row: %w", r.failuresInARow, err)
	}
	return nil
}

// rewrite has the API server rewrite an object: a patch that changes nothing is stored when what is stored differs
// from what the API server would store now. It is tried a few times when the API server is busy.
func (r *round) rewrite(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	backoff := wait.Backoff{Steps: 3, Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2}
	return retry.OnError(backoff, transient, func() error {
		if err := r.limiter.Wait(ctx); err != nil {
			return err
		}
		_, err := r.resource.Namespace(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, []byte("{}"),
			metav1.PatchOptions{FieldManager: string(child.FieldOwner)})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or written by another meanwhile
			return nil
		}
		return err
	})
}

func transient(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err)
}
