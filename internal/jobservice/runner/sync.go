package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// unseen is how long an AIJob that was made may be missing in the cache before the API server is asked for it.
const unseen = 30 * time.Second

// errAgain has a task looked at again soon.
var errAgain = errors.New("not yet")

// next works on one task of the queue, and says whether there may be more.
func (d *Dispatcher) next(ctx context.Context) bool {
	id, closed := d.queue.Get()
	if closed {
		return false
	}
	defer d.queue.Done(id)
	err := d.sync(ctx, id)
	switch {
	case err == nil:
		d.queue.Forget(id)
	case ctx.Err() != nil:
	default:
		if !errors.Is(err, errAgain) {
			d.log.Warn("Will retry", "job", id, "error", err)
		}
		d.queue.AddRateLimited(id)
	}
	return true
}

// sync brings a job and its AIJob together.
func (d *Dispatcher) sync(ctx context.Context, id string) error {
	d.mu.Lock()
	stray, isStray := d.strays[id]
	d.mu.Unlock()
	if isStray {
		if err := d.cancelAIJob(ctx, stray, id); err != nil {
			return err
		}
		d.mu.Lock()
		delete(d.strays, id)
		d.mu.Unlock()
	}
	t, ok := d.task(id)
	switch {
	case !ok:
		return nil
	case t.cancelled:
		if err := d.cancelAIJob(ctx, nameOf(&t.job), id); err != nil {
			return err
		}
		d.forget(id, t.fence)
		return nil
	case t.uid == "":
		return d.settle(ctx, t, d.ensure(ctx, t))
	}
	return d.settle(ctx, t, d.follow(ctx, t))
}

// settle ends a job whose AIJob was refused, and a task that is no longer this replica's.
func (d *Dispatcher) settle(ctx context.Context, t task, err error) error {
	if lost(err) {
		d.forget(t.job.ID, t.fence)
		return nil
	}
	var refusal *refusal
	if !errors.As(err, &refusal) {
		return err
	}
	d.log.Info("AIJob refused", "job", t.job.ID, "namespace", t.job.Namespace, "error", refusal)
	return d.fail(ctx, t, jobs.Failure{Message: refusal.Error()})
}

// refusal is an error that trying again does not change.
type refusal struct{ error }

// fail ends a job with a failure.
func (d *Dispatcher) fail(ctx context.Context, t task, failure jobs.Failure) error {
	_, err := d.store.Fail(ctx, t.job.ID, t.fence, failure)
	return d.end(t, err)
}

// end is done with a job whose end the store was told.
func (d *Dispatcher) end(t task, err error) error {
	if err != nil && !lost(err) {
		return err
	}
	d.forget(t.job.ID, t.fence)
	return nil
}

// forbiddenFor is how long a quota, or a right that the service or the job's user lacks, may keep the AIJob of a job from being created. After that
// the job goes to dead_letter with what is forbidden.
const forbiddenFor = time.Hour

// ensure makes the AIJob of a task, or finds the one that was made before.
func (d *Dispatcher) ensure(ctx context.Context, t task) error {
	queue, err := d.queueName(ctx, &t.job)
	if err != nil {
		return err
	}
	aijob, err := newAIJob(&t.job, queue)
	if err != nil {
		return &refusal{err}
	}
	if err := d.mayStart(ctx, &t.job); err != nil {
		if forbidden := (*auth.Forbidden)(nil); errors.As(err, &forbidden) && time.Since(t.since) > forbiddenFor {
			return d.fail(ctx, t, jobs.Failure{Message: err.Error(), Retryable: true})
		}
		return err
	}
	err = d.cluster.direct.Create(ctx, aijob)
	switch {
	case apierrors.IsAlreadyExists(err):
		return d.adopt(ctx, t)
	case err != nil:
		d.metrics.request("create", err)
		if refused(err) {
			return &refusal{err}
		}
		if apierrors.IsForbidden(err) && time.Since(t.since) > forbiddenFor {
			return d.fail(ctx, t, jobs.Failure{Message: err.Error(), Retryable: true})
		}
		return fmt.Errorf("create the AIJob: %w", err)
	}
	d.metrics.request("create", nil)
	d.log.Info("Created AIJob", "job", t.job.ID, "namespace", aijob.Namespace, "name", aijob.Name, "queue", queue)
	d.change(t.job.ID, t.fence, func(t *task) { t.uid, t.since = aijob.UID, time.Now() })
	// The informer reports it; this is for the one that it does not report.
	d.queue.AddAfter(t.job.ID, unseen)
	return nil
}

// queueName is the AIJobQueue that the AIJob names. A job whose sender named no queue is in one of the name of its type; where there
// is no such AIJobQueue it needs none.
func (d *Dispatcher) queueName(ctx context.Context, job *jobs.Job) (string, error) {
	if job.Queue != job.Type {
		return job.Queue, nil
	}
	err := d.cluster.cached.Get(ctx, types.NamespacedName{Name: job.Queue}, &aiplatformv1alpha1.AIJobQueue{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for AIJobQueue %s: %w", job.Queue, err)
	}
	return job.Queue, nil
}

// adopt an AIJob that exists: this or another replica made it before.
func (d *Dispatcher) adopt(ctx context.Context, t task) error {
	aijob := &aiplatformv1alpha1.AIJob{}
	if err := d.cluster.direct.Get(ctx, nameOf(&t.job), aijob); err != nil {
		if apierrors.IsNotFound(err) {
			return errAgain // gone in between
		}
		return fmt.Errorf("read the AIJob: %w", err)
	}
	if idOf(aijob) != t.job.ID {
		return &refusal{fmt.Errorf("AIJob %s exists, but is not this job's: it lacks the label %s=%s",
			aijob.Name, aiplatformv1alpha1.LabelServiceJob, t.job.ID)}
	}
	// A user that may create AIJobs in the namespace and knows the ID of the job can create it first. Its queue can be newer than the AIJob.
	wanted, err := newAIJob(&t.job, aijob.Spec.QueueName)
	if err != nil {
		return &refusal{err}
	}
	if !isOfSpec(aijob, wanted) {
		return &refusal{fmt.Errorf("AIJob %s exists, but its spec is not this job's: delete it and submit the job again", aijob.Name)}
	}
	if !aijob.DeletionTimestamp.IsZero() && !aijob.Status.Phase.Ended() {
		return errAgain // makes room for a new one
	}
	requeued := time.Time{}
	if end := aijob.Status.CompletionTime; aijob.Status.Phase == aiplatformv1alpha1.AIJobDeadLetter && end != nil && wasRequeued(&t.job, aijob) {
		before := aijob.DeepCopy()
		if aijob.Annotations == nil {
			aijob.Annotations = map[string]string{}
		}
		aijob.Annotations[aiplatformv1alpha1.AnnotationRequeue], aijob.Annotations[annotationQueued] = "true", queuedAt(&t.job)
		err := d.cluster.direct.Patch(ctx, aijob, client.MergeFrom(before))
		d.metrics.request("requeue", err)
		if err != nil {
			return fmt.Errorf("requeue the AIJob: %w", err)
		}
		requeued = end.Time
	}
	d.log.Info("Adopted AIJob", "job", t.job.ID, "phase", aijob.Status.Phase, "requeued", !requeued.IsZero())
	d.change(t.job.ID, t.fence, func(t *task) { t.uid, t.requeued, t.since = aijob.UID, requeued, time.Now() })
	d.queue.Add(t.job.ID)
	return nil
}

// annotationQueued on an AIJob is when its job was queued the last time, by the clock of the job service: it tells what was queued
// again from what was not, without a look at the operator's clock.
const annotationQueued = "aiplatform.example.com/service-queued-at"

func queuedAt(job *jobs.Job) string { return job.QueuedAt.UTC().Format(metav1.RFC3339Micro) }

// wasRequeued says whether a job was queued again since its AIJob was last told so.
func wasRequeued(job *jobs.Job, aijob *aiplatformv1alpha1.AIJob) bool {
	if told, ok := aijob.Annotations[annotationQueued]; ok {
		return told != queuedAt(job)
	}
	return job.QueuedAt.After(aijob.Status.CompletionTime.Time) // made by version 0.3
}

// follow reports the state of the AIJob of a task to the store.
func (d *Dispatcher) follow(ctx context.Context, t task) error {
	aijob := &aiplatformv1alpha1.AIJob{}
	err := d.cluster.cached.Get(ctx, nameOf(&t.job), aijob)
	if apierrors.IsNotFound(err) || err == nil && aijob.UID != t.uid {
		return d.missing(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("read the AIJob: %w", err)
	}
	end := aijob.Status.CompletionTime
	_, asked := aijob.Annotations[aiplatformv1alpha1.AnnotationRequeue]
	if aijob.Status.Phase == aiplatformv1alpha1.AIJobDeadLetter && (asked || end != nil && end.Time.Equal(t.requeued)) {
		return nil // about to be queued again
	}
	id, fence := t.job.ID, t.fence
	switch aijob.Status.Phase {
	case aiplatformv1alpha1.AIJobSucceeded:
		_, err := d.store.Complete(ctx, id, fence, resultOf(aijob))
		return d.end(t, err)
	case aiplatformv1alpha1.AIJobFailed:
		return d.fail(ctx, t, jobs.Failure{Message: messageOf(aijob)})
	case aiplatformv1alpha1.AIJobDeadLetter:
		return d.fail(ctx, t, jobs.Failure{Message: messageOf(aijob), Retryable: true})
	case aiplatformv1alpha1.AIJobCancelled:
		_, err := d.store.Cancel(ctx, id, "AIJob "+aijob.Namespace+"/"+aijob.Name)
		return d.end(t, err)
	}
	phase := phaseOf(aijob, t.told)
	if phase == "" {
		return nil
	}
	if err := d.store.Phase(ctx, id, fence, phase); err != nil {
		return err
	}
	d.change(id, fence, func(t *task) { t.told = phase })
	return nil
}

// missing decides about an AIJob that the cache does not have: it may be new or deleted.
func (d *Dispatcher) missing(ctx context.Context, t task) error {
	aijob := &aiplatformv1alpha1.AIJob{}
	err := d.cluster.direct.Get(ctx, nameOf(&t.job), aijob)
	if err == nil && aijob.UID == t.uid {
		return errAgain // the cache is behind
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the AIJob: %w", err)
	}
	return d.fail(ctx, t, jobs.Failure{
		Message: fmt.Sprintf("AIJob %s in namespace %s was deleted before the job ended", nameOf(&t.job).Name, t.job.Namespace),
	})
}

// cancelAIJob asks the operator to end an AIJob whose job has ended. One that is not there, or not the job's, is left alone.
func (d *Dispatcher) cancelAIJob(ctx context.Context, name types.NamespacedName, id string) error {
	aijob := &aiplatformv1alpha1.AIJob{}
	if err := d.cluster.direct.Get(ctx, name, aijob); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read the AIJob to cancel: %w", err)
	}
	if idOf(aijob) != id || aijob.Status.Phase.Ended() || aijob.Spec.Cancel != nil && *aijob.Spec.Cancel {
		return nil
	}
	// With the UID, so that it is this one or none.
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"cancel":true}}`, aijob.UID)
	err := d.cluster.direct.Patch(ctx, aijob, client.RawPatch(types.MergePatchType, patch))
	d.metrics.request("cancel", err)
	if err != nil && !apierrors.IsNotFound(err) && !refused(err) {
		return fmt.Errorf("cancel the AIJob: %w", err)
	}
	if err != nil {
		d.log.Warn("Cannot cancel AIJob", "job", id, "error", err)
		return nil
	}
	d.log.Info("Cancelled AIJob", "job", id, "namespace", name.Namespace, "name", name.Name)
	return nil
}
