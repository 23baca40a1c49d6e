package workerpool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// report writes this controller's part of the status, and no other: the condition WorkersReady and status.workers. Without workers
// it takes both away. It returns when to look again.
func (r *Reconciler) report(ctx context.Context, o observed, d desired, problem error, m *memory) (again time.Duration, err error) {
	s := d.status
	if problem != nil && o.queue.Spec.Workers != nil {
		reason, message := explain(problem)
		s.condition = condition(o, metav1.ConditionFalse, reason, message)
	}
	write, later := due(o.queue.Status, s, o.queue.Spec.Workers != nil, o.now.Sub(m.reported))
	again = d.again
	if later > 0 {
		again = reconciling.Sooner(again, later)
	}
	if !write {
		return again, nil
	}
	content, err := json.Marshal(applied(o.queue, s))
	if err != nil {
		return again, err
	}
	target := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: o.queue.Name}}
	err = r.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, content), fieldOwner, client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // it is gone, or another of that name
		return again, nil
	case err != nil:
		return again, fmt.Errorf("write the workers' part of the status: %w", err)
	}
	m.reported = o.now
	after := o.queue.Status.Conditions
	if s.condition != nil {
		after = []metav1.Condition{*s.condition}
	}
	reporting.Tell(ctx, nil, o.queue, reporting.Transition{Before: o.queue.Status.Conditions, After: after})
	return again, nil
}

// due says whether the status has to be written now, or when. Figures alone are worth a write each figuresInterval.
func due(before aiplatformv1alpha1.AIJobQueueStatus, s poolStatus, hasWorkers bool, since time.Duration) (now bool, later time.Duration) {
	is := meta.FindStatusCondition(before.Conditions, reasons.ConditionWorkersReady)
	if !hasWorkers {
		return is != nil || before.Workers != nil, 0
	}
	if s.condition == nil { // nothing to say yet
		return false, 0
	}
	// A queue whose job service has never answered has no figures; those that it had stay.
	if s.workers == nil {
		s.workers = before.Workers
	}
	if !equality.Semantic.DeepEqual(is, s.condition) {
		return true, 0
	}
	if equality.Semantic.DeepEqual(before.Workers, s.workers) {
		return false, 0
	}
	if before.Workers == nil || before.Workers.Replicas != s.workers.Replicas || before.Workers.Ready != s.workers.Ready {
		return true, 0
	}
	left := figuresInterval - since
	return left <= 0, max(0, left)
}

// applied is the part of the queue that this controller owns.
func applied(queue *aiplatformv1alpha1.AIJobQueue, s poolStatus) map[string]any {
	status := map[string]any{}
	if s.workers != nil {
		status["workers"] = s.workers
	}
	if s.condition != nil {
		status["conditions"] = []metav1.Condition{*s.condition}
	}
	return map[string]any{
		"apiVersion": aiplatformv1alpha1.GroupVersion.String(), "kind": "AIJobQueue",
		"metadata": map[string]any{"name": queue.Name, "uid": queue.UID}, "status": status,
	}
}
