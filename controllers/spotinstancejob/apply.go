package spotinstancejob

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
// returns the errors of writes, which hold up no other, beside the problems.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) ([]problem, error) {
	var problems []problem
	note := func(found []problem, err error) error {
		problems = append(problems, found...)
		return err
	}
	// What goes wrong with CheckpointBackups must not hold up replicas.
	tell := func(name, what string, err error) {
		if err != nil {
			problems = append(problems, problem{
				reasons.ConditionCheckpointAgentAvailable, reasons.CheckpointFailed, "CheckpointBackup " + name + " " + what + ": " + err.Error(),
			})
		}
	}
	var failed []error
	for _, step := range []func() error{
		each(d.relabel, func(job *batchv1.Job) error { return r.relabel(ctx, o, job) }),
		each(d.checkpoints, func(wanted checkpointbackup.Backup) error {
			tell(wanted.Key.Name, "cannot be created", note(r.requestCheckpoint(ctx, o, wanted)))
			return nil
		}),
		each(d.suspend, func(change suspension) error { return r.suspend(ctx, change) }),
		func() error { return r.children.EndPods(ctx, d.outlived, o.now) },
		each(d.expel, func(pod *corev1.Pod) error { return r.remove(ctx, pod, client.GracePeriodSeconds(0)) }),
		each(d.orphans, func(pod *corev1.Pod) error { return r.remove(ctx, pod) }),
		each(d.remove, func(job *batchv1.Job) error { return r.remove(ctx, job) }),
		each(d.create, func(job *batchv1.Job) error {
			return note(r.create(ctx, o, job))
		}),
		each(d.prune, func(old checkpointbackup.Backup) error {
			tell(old.Key.Name, "cannot be deleted", r.Backups.Delete(ctx, old))
			return nil
		}),
	} {
		failed = append(failed, step())
	}
	return problems, errors.Join(failed...)
}

// each does the same with all of a list.
func each[T any](list []T, do func(T) error) func() error {
	return func() error {
		var failed []error
		for _, one := range list {
			failed = append(failed, do(one))
		}
		return errors.Join(failed...)
	}
}

// requestCheckpoint creates a CheckpointBackup.
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
