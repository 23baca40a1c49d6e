package spotinstancejob

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// problem is an object that the API server refuses until a user changes something. Other replicas go on.
type problem struct{ condition, reason, message string }

// apply does what the plan wants, what is urgent first. Every step can be done again: a crash after any of them leads to the same. It
// returns child.ErrLeftover, beside the problems, when a Job can be created soon.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) ([]problem, error) {
	var problems []problem
	for _, job := range d.relabel {
		if err := r.relabel(ctx, o, job); err != nil {
			return nil, err
		}
	}
	for _, backup := range d.checkpoints {
		found, err := r.requestCheckpoint(ctx, o, backup)
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
		if err := r.remove(ctx, pod); err != nil {
			return nil, err
		}
	}
	for _, job := range d.remove {
		if err := r.remove(ctx, job); err != nil {
			return nil, err
		}
	}
	var leftover error
	for _, job := range d.create {
		found, err := r.create(ctx, o, job)
		switch {
		case errors.Is(err, child.ErrLeftover):
			leftover = err
		case err != nil:
			return nil, err
		}
		problems = append(problems, found...)
	}
	for _, backup := range d.prune {
		if err := r.Backups.Delete(ctx, backup); err != nil {
			return nil, err
		}
	}
	return problems, leftover
}

// requestCheckpoint creates a CheckpointBackup. That it cannot be created must not hold up a replica that is being lost.
func (r *Reconciler) requestCheckpoint(ctx context.Context, o observed, backup checkpointbackup.Backup) ([]problem, error) {
	owner := metav1.NewControllerRef(o.job, spotv1alpha1.GroupVersion.WithKind(kindSpotInstanceJob))
	err := r.Backups.Create(ctx, backup, *owner)
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		r.requested.add(client.ObjectKeyFromObject(o.job), backup)
		if err == nil {
			log.FromContext(ctx).Info("Created CheckpointBackup", "child", backup.Key.Name, "pod", backup.Spec.Pod.Name)
			r.countRequest(o, backup)
		}
		return nil, nil
	case errors.Is(err, checkpointbackup.ErrNotServed):
		return nil, nil // the next plan says so
	}
	if refusal := child.RefusalOf(err, "CheckpointBackup "+backup.Key.Name); refusal != nil {
		return []problem{{reasons.ConditionCheckpointAgentAvailable, reasons.CheckpointFailed, refusal.Message}}, nil
	}
	return nil, err
}

// suspend stops or resumes a Job. That it is retired, and why, is written with it.
func (r *Reconciler) suspend(ctx context.Context, change suspension) error {
	fields := map[string]any{"spec": map[string]any{"suspend": change.to}}
	if change.retire != "" {
		fields["metadata"] = map[string]any{"annotations": map[string]string{annotationRetired: change.retire}}
	}
	return r.children.Merge(ctx, change.job, fields)
}

// remove deletes a Job or pod. A pod may stay until its finalizers are gone.
func (r *Reconciler) remove(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return r.children.Delete(ctx, object, append(options, client.DisableReadYourWritesConsistency)...)
}

func (r *Reconciler) create(ctx context.Context, o observed, job *batchv1.Job) ([]problem, error) {
	existing, err := r.children.Create(ctx, o.job, job)
	var refusal *child.Refusal
	switch {
	case errors.As(err, &refusal):
		return []problem{{reasons.ConditionReady, refusal.Reason, refusal.Message}}, nil
	case err != nil || existing == nil:
		return nil, err
	}
	if err := r.relabel(ctx, o, existing); err != nil {
		return nil, err
	}
	return nil, child.ErrLeftover // the cache will show it
}

// relabel gives a Job of ours back the labels by which the cache finds it.
func (r *Reconciler) relabel(ctx context.Context, o observed, job client.Object) error {
	index, _, ok := parseJobName(o.job.Name, job.GetName())
	if !ok {
		return nil
	}
	return r.children.Merge(ctx, job, child.Labels(labelsOf(o.job, index)))
}
