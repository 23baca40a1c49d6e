package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// kueueStopping is on a Job while Kueue evicts it: it is about to restore the pod template.
const kueueStopping = "kueue.x-k8s.io/stopping"

// othersLabels are labels of the pod template of a Job that its strategy, the Job controller or child.Writer set at its creation.
var othersLabels = []string{batchv1.JobNameLabel, batchv1.ControllerUidLabel, "job-name", "controller-uid", child.LabelNotInBackup}

// errNotInPlace says that the API server does not accept an edit in the Job that Kueue holds.
var errNotInPlace = errors.New("the edit cannot be made in the Job that Kueue holds")

// observeHeld reads the Job that Kueue holds from the API server when the spec was edited: the cache does not keep its pod template, and may not
// show that Kueue has let it go.
func (r *Reconciler) observeHeld(ctx context.Context, o *observed) error {
	if !o.isOutdated() || !isHeldByKueue(o.workers) {
		return nil
	}
	held, err := reconciling.Get[batchv1.Job](ctx, r.Direct, o.job.Namespace, o.workers.Name)
	if held != nil && held.UID == o.workers.UID {
		o.held = held
	}
	return err
}

// planEdited brings an edit to the Job that was made before it. Kueue may let that Job go at any moment, which the version of the Job decides:
// either it is changed before, and Kueue tries again with the change, or the change is refused, and the next look finds a Job that was let go.
// That one is deleted, whatever its pods do: the status does not count them as a start. That a Job is replaced is in the status before it is
// deleted.
func (p *planner) planEdited() {
	obstacle, _ := p.findObstacle()
	switch {
	case p.workers.Labels[build.KueueQueueLabel] == "" || p.job.Status.Reason == reasons.RequeuedAfterEdit:
		p.remove(p.workers)
	case obstacle == "" && p.held != nil && isBeingStopped(p.held): // its pod template cannot be changed yet
		p.planHeldByKueue()
		p.lookAgain(retryRefused)
	case obstacle == "" && p.held != nil && ptr.Deref(p.held.Spec.Suspend, false):
		p.planHeldByKueue()
		p.amend = p.amended()
	case isHeldByKueue(p.workers) && p.held == nil: // it is gone, which the cache will show
	default:
		p.requeue()
	}
}

// isBeingStopped says whether Kueue or the Job controller has not yet done what the suspension of the Job asks for.
func isBeingStopped(held *batchv1.Job) bool {
	told := jobCondition(held, batchv1.JobSuspended)
	return ptr.Deref(held.Spec.Suspend, false) && (held.Annotations[kueueStopping] != "" || held.Status.Active > 0 || told != nil && !isTrue(told))
}

// amended is the Job that Kueue holds, made from the spec as it is. As long as Kueue holds it, it has put nothing into the pod template.
func (p *planner) amended() *batchv1.Job {
	as := p.observed
	as.job = p.job.DeepCopy()
	as.job.Status.StartCount, as.job.Status.DefaultResources = build.StartOf(p.held), p.status.DefaultResources
	want, next := as.buildWorkers().(*batchv1.Job), p.held.DeepCopy()
	delete(next.Annotations, mlv1.AnnotationIsolated)
	maps.Copy(next.Annotations, want.Annotations)
	maps.Copy(next.Labels, want.Labels)
	is := p.held.Spec
	next.Spec = want.Spec
	next.Spec.Suspend, next.Spec.Selector, next.Spec.ManualSelector = is.Suspend, is.Selector, is.ManualSelector
	next.Spec.ManagedBy, next.Spec.Scheduling = is.ManagedBy, is.Scheduling
	for _, name := range othersLabels {
		if value, ok := is.Template.Labels[name]; ok {
			next.Spec.Template.Labels[name] = value
		}
	}
	// Of a pod template Kueue compares only tolerations and containers with its Workload. Without a difference there it would choose a flavor by the
	// former node selector, and restore that at an eviction. No node has such a taint.
	next.Spec.Template.Spec.Tolerations = append(slices.Clip(next.Spec.Template.Spec.Tolerations), corev1.Toleration{
		Key: mlv1.AnnotationGeneration, Operator: corev1.TolerationOpEqual, Value: want.Annotations[mlv1.AnnotationGeneration],
	})
	return next
}

// amend changes the Job that Kueue holds, unless anything changed it since it was read. Which changes are possible is for the API server to say:
// those of labels, annotations, node selector, node affinity and tolerations, and in newer versions of resources too.
func (r *Reconciler) amend(ctx context.Context, o observed, d desired) error {
	if d.amend == nil {
		return nil
	}
	err := r.Patch(ctx, d.amend.DeepCopy(), client.MergeFromWithOptions(o.held, client.MergeFromWithOptimisticLock{}), child.FieldOwner)
	switch {
	case apierrors.IsInvalid(err):
		return errNotInPlace
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("patch Job %s: %w", d.amend.Name, err)
	}
	return nil
}

// planRequeue is the plan after the API server did not accept the edit in the Job that Kueue holds.
func planRequeue(o observed) desired {
	p := newPlanner(o)
	p.requeue()
	return p.desired
}

// requeue decides to replace the Job by one that waits in its queue as a new one.
func (p *planner) requeue() {
	message := fmt.Sprintf("%s changed: another Job is made, which waits in LocalQueue %s as a new one",
		strings.Join(build.EditedFields(p.workers, p.job), ", "), p.workers.Labels[build.KueueQueueLabel])
	if p.lostAdmission() {
		p.setSuspendedFor(reasons.RequeuedAfterEdit, message)
	} else {
		p.setPending(reasons.RequeuedAfterEdit, message)
	}
	p.lookAgain(time.Millisecond)
}
