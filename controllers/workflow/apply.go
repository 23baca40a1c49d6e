package workflow

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// fieldOwner is who the API server notes as the writer.
const fieldOwner = client.FieldOwner("spot-training-operator")

// When to try again what could not be done.
const (
	// retryLeftover is for an AIJob that stood in the way and has just gone.
	retryLeftover = 500 * time.Millisecond
	// retryProblem is for what the API server refused for now.
	retryProblem = 30 * time.Second
)

// problem is an answer of the API server to the AIJob of a stage.
type problem struct {
	stage   aiplatformv1alpha1.StageName
	message string
	// retry is when to try again; 0 for what will not be different next time.
	retry time.Duration
}

// apply does what the plan wants. Every step can be done again: a crash after any of them leads to the same.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) ([]problem, error) {
	for _, job := range d.stop {
		if err := r.stop(ctx, job); err != nil {
			return nil, err
		}
	}
	var problems []problem
	for _, job := range d.create {
		found, err := r.create(ctx, o, job)
		if err != nil {
			return nil, err
		}
		if found != nil {
			problems = append(problems, *found)
		}
	}
	for _, job := range d.remove {
		err := r.Delete(ctx, &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}},
			client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground), client.DisableReadYourWritesConsistency)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("delete AIJob %s: %w", job.Name, err)
		}
	}
	return problems, nil
}

// stop cancels an AIJob.
func (r *Reconciler) stop(ctx context.Context, job *aiplatformv1alpha1.AIJob) error {
	target := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"cancel":true}}`, job.UID)
	err := r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cancel AIJob %s: %w", job.Name, err)
	}
	return nil
}

// create makes an AIJob. One of the name that is somebody else's is left alone.
func (r *Reconciler) create(ctx context.Context, o observed, job *aiplatformv1alpha1.AIJob) (*problem, error) {
	stage := aiplatformv1alpha1.StageName(job.Labels[aiplatformv1alpha1.LabelStage])
	err := r.Create(ctx, job, fieldOwner)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return r.inTheWay(ctx, o, job, stage)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // the workflow goes with its namespace
		return &problem{stage, "the namespace is being deleted", retryProblem}, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return &problem{stage, "the API server refuses its AIJob: " + err.Error(), 0}, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return &problem{stage, err.Error() + "; free or raise the quota", retryProblem}, nil
	case apierrors.IsForbidden(err):
		return &problem{stage, "the API server refuses its AIJob: " + err.Error(), retryProblem}, nil
	}
	return nil, fmt.Errorf("create AIJob %s: %w", job.Name, err)
}

// inTheWay says what is to be done about an AIJob that has the name of a new one.
func (r *Reconciler) inTheWay(ctx context.Context, o observed, job *aiplatformv1alpha1.AIJob, stage aiplatformv1alpha1.StageName) (*problem, error) {
	var existing aiplatformv1alpha1.AIJob
	if err := r.Direct.Get(ctx, client.ObjectKeyFromObject(job), &existing); err != nil {
		if apierrors.IsNotFound(err) {
			return &problem{stage, "another AIJob had the name of its AIJob until now", retryLeftover}, nil
		}
		return nil, fmt.Errorf("read AIJob %s: %w", job.Name, err)
	}
	if metav1.IsControlledBy(&existing, o.workflow) {
		return nil, nil
	}
	return &problem{stage, fmt.Sprintf("AIJob %s exists and does not belong to this workflow: delete it, and start the workflow again",
		job.Name), 0}, nil
}

// withProblems writes into a plan what the API server refused.
func withProblems(o observed, d *desired, problems []problem) {
	p := planner{observed: o, desired: *d}
	for _, found := range problems {
		stage := p.stage(found.stage)
		stage.JobName = ""
		if found.retry == 0 {
			p.fail(stage, found.message) // the workflow is given up when this is written
			continue
		}
		stage.Message = shorten(found.message)
		p.wake(found.retry)
	}
	if len(problems) > 0 {
		p.describe()
	}
	*d = p.desired
}
