package spotinstancejob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// fieldOwner is who the API server notes as the writer.
const fieldOwner = client.FieldOwner("spot-training-operator")

// problem is an answer of the API server that is the user's to mend. It does not keep the other replicas from going on.
type problem struct{ condition, reason, message string }

// errLeftover says that a Job of an earlier SpotInstanceJob of the same name is still being deleted.
var errLeftover = errors.New("a Job of an earlier SpotInstanceJob of this name is still being deleted")

// apply does what the plan wants, what is urgent first. Every step can be done again: a crash after any of them leads to
// the same.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) ([]problem, error) {
	var problems []problem
	for _, job := range d.relabel {
		if err := r.relabel(ctx, o, job); err != nil {
			return nil, err
		}
	}
	for _, backup := range d.checkpoints {
		found, err := r.ask(ctx, o, backup)
		if err != nil {
			return nil, err
		}
		problems = append(problems, found...)
	}
	for _, change := range d.suspend {
		if err := r.suspend(ctx, change); err != nil {
			return nil, err
		}
	}
	for _, pod := range d.expel {
		if err := r.remove(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return nil, err
		}
	}
	for _, pod := range d.orphans {
		if err := r.remove(ctx, pod, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return nil, err
		}
	}
	for _, job := range d.remove {
		if err := r.remove(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return nil, err
		}
	}
	leftover := false
	for _, job := range d.create {
		found, err := r.create(ctx, o, job)
		if errors.Is(err, errLeftover) {
			leftover = true
			continue
		}
		if err != nil {
			return nil, err
		}
		problems = append(problems, found...)
	}
	for _, backup := range d.prune {
		if err := r.Backups.Delete(ctx, backup); err != nil {
			return nil, err
		}
	}
	if leftover {
		return problems, errLeftover
	}
	return problems, nil
}

// ask creates a CheckpointBackup. That it cannot be created must not hold up a replica that is being lost.
func (r *Reconciler) ask(ctx context.Context, o observed, backup checkpointbackup.Backup) ([]problem, error) {
	owner := metav1.NewControllerRef(o.job, spotv1alpha1.GroupVersion.WithKind(kindSpotInstanceJob))
	err := r.Backups.Create(ctx, backup, *owner)
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		r.asked.add(client.ObjectKeyFromObject(o.job), backup)
		if err == nil {
			r.requested(o, backup)
		}
		return nil, nil
	case errors.Is(err, checkpointbackup.ErrNotServed):
		return nil, nil // the next plan says so
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err):
		return []problem{{reasons.ConditionCheckpointAgentAvailable, reasons.CheckpointFailed, err.Error()}}, nil
	}
	return nil, err
}

// suspend stops or resumes a Job. That it is retired, and why, is written with it.
func (r *Reconciler) suspend(ctx context.Context, change suspension) error {
	meta := map[string]any{"uid": change.job.UID}
	if change.retire != "" {
		meta["annotations"] = map[string]string{annotationRetired: change.retire}
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"suspend": change.to}})
	if err != nil {
		return fmt.Errorf("encode the suspension of Job %s: %w", change.job.Name, err)
	}
	target := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: change.job.Name, Namespace: change.job.Namespace}}
	err = r.children.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("suspend Job %s: %w", change.job.Name, err)
	}
	return nil
}

// remove deletes the object that was seen, not one of the same name that came after it.
func (r *Reconciler) remove(ctx context.Context, object client.Object, how client.DeleteOption) error {
	uid := object.GetUID()
	target := object.DeepCopyObject().(client.Object)
	// A pod may stay until its finalizers are gone: nothing waits for that.
	err := r.children.Delete(ctx, target, client.Preconditions{UID: &uid}, how, client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// create makes a Job. One of the name that is somebody else's is left alone.
func (r *Reconciler) create(ctx context.Context, o observed, job *batchv1.Job) ([]problem, error) {
	err := r.children.Create(ctx, job, fieldOwner)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return r.inTheWay(ctx, o, job)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // the job goes with its namespace
		return nil, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return []problem{{reasons.ConditionReady, reasons.InvalidSpec,
			"spec.jobTemplate: the API server refuses the Job of a replica: " + err.Error()}}, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return []problem{{reasons.ConditionReady, reasons.Forbidden, err.Error() + "; free or raise the quota"}}, nil
	case apierrors.IsForbidden(err):
		return []problem{{reasons.ConditionReady, reasons.Forbidden, err.Error()}}, nil
	}
	return nil, fmt.Errorf("create Job %s: %w", job.Name, err)
}

// inTheWay says what is to be done about a Job that has the name of a new one.
func (r *Reconciler) inTheWay(ctx context.Context, o observed, job *batchv1.Job) ([]problem, error) {
	var existing batchv1.Job
	if err := r.Direct.Get(ctx, client.ObjectKeyFromObject(job), &existing); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errLeftover
		}
		return nil, fmt.Errorf("read Job %s: %w", job.Name, err)
	}
	owner := metav1.GetControllerOf(&existing)
	switch {
	case metav1.IsControlledBy(&existing, o.job):
		if existing.Labels[spotv1alpha1.LabelSpotInstanceJob] == "" {
			return nil, r.relabel(ctx, o, &existing)
		}
		return nil, errLeftover // the cache will show it, or it is being deleted
	case owner != nil && owner.Kind == kindSpotInstanceJob && owner.Name == o.job.Name:
		return nil, errLeftover
	}
	return []problem{{reasons.ConditionReady, reasons.ObjectConflict, fmt.Sprintf(
		"Job %s exists and does not belong to this job: delete or rename it, or give this job another name", job.Name)}}, nil
}

// relabel gives a Job of ours back the labels by which the cache finds it.
func (r *Reconciler) relabel(ctx context.Context, o observed, job *batchv1.Job) error {
	index, _, ok := parseJobName(o.job.Name, job.Name)
	if !ok {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": job.UID, "labels": labelsOf(o.job, index)}})
	if err != nil {
		return fmt.Errorf("encode the labels of Job %s: %w", job.Name, err)
	}
	target := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}}
	err = r.children.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("label Job %s: %w", job.Name, err)
	}
	return nil
}
