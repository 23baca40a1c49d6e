package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// apply makes what exists what should be. Every step can be done again: a crash after any of them leads to the same. An object that cannot
// be written, or removed, holds up those only that need it.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) error {
	kept, failed := r.remove(ctx, o.now, d), []error{r.amend(ctx, o, d)}
	for _, object := range d.apply {
		live := o.children[childKey(object)]
		// Pods need what comes before their Job. Those of an earlier attempt would have the same host names, and write the same checkpoints.
		if _, workers := object.(*batchv1.Job); workers && (errors.Join(failed...) != nil || live == nil && kept != nil) {
			continue
		}
		writer := r.writer()
		if _, group := object.(*unstructured.Unstructured); group {
			writer = r.groups()
		}
		failed = append(failed, writer.Ensure(ctx, o.job, object, live))
	}
	for _, pod := range d.label {
		// Where the admission policy of config/admission is installed the label is there from the start.
		failed = append(failed, r.writer().Merge(ctx, pod, child.Labels(map[string]string{mlv1.LabelReplicaID: replicaOf(pod)})))
	}
	return errors.Join(append(failed, kept)...)
}

// remove deletes what should go.
func (r *Reconciler) remove(ctx context.Context, now time.Time, d desired) error {
	var failed []error
	for pod, grace := range d.expelled { // one that is being deleted gets a shorter grace period
		failed = append(failed, r.writer().Delete(ctx, pod, client.GracePeriodSeconds(grace)))
	}
	failed = append(failed, r.writer().EndPods(ctx, d.outlived, now))
	for _, pod := range d.dead {
		failed = append(failed, r.writer().FailPod(ctx, pod, now))
	}
	for _, object := range d.delete {
		if group, ok := object.(*unstructured.Unstructured); ok {
			failed = append(failed, r.removeGroup(ctx, group))
			continue
		}
		failed = append(failed, r.writer().Delete(ctx, object))
	}
	return errors.Join(failed...)
}

// writer writes the job's children.
func (r *Reconciler) writer() child.Writer { return child.Writer{Client: r.Client, Direct: r.Direct} }

// groups writes PodGroups. They are not cached: their kinds may be missing, and only their creation matters to the pods.
func (r *Reconciler) groups() child.Writer {
	return child.Writer{Client: r.uncached, Direct: r.uncached}
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
	if owner := metav1.GetControllerOf(is); owner == nil || owner.Kind != build.Kind {
		return nil
	}
	return r.groups().Delete(ctx, is)
}
