package aijob

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// parallelCreates is how many pods of a gang are created at the same time.
const parallelCreates = 32

// apply does what the plan wants. Every step can be done again: a crash after any of them leads to the same. A step that fails holds up
// those only that need it. It returns what the API server refuses.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) (*failure, error) {
	var left, live []error
	for _, pod := range d.prune { // which have ended: nothing waits for them
		left = append(left, r.stopPod(ctx, pod))
	}
	left = append(left, r.children.EndPods(ctx, d.outlived, o.now))
	for _, pod := range d.stop {
		live = append(live, r.stopPod(ctx, pod))
	}
	for _, pod := range d.force {
		live = append(live, r.stopPod(ctx, pod, client.GracePeriodSeconds(0)))
	}
	var problem *failure
	err := errors.Join(live...)
	switch {
	case d.requeued:
		err = errors.Join(err, r.forgetRequeue(ctx, o.job))
	case err != nil: // a pod that may still run
	case d.remove: // its pods go with it
		err = r.jobs().Delete(ctx, o.job)
	case len(d.services)+len(d.members) > 0:
		problem, err = r.createMembers(ctx, o.job, d)
	}
	return problem, errors.Join(append(left, err)...)
}

// createMembers creates the pods of an attempt, and before them the Services by which they are found.
func (r *Reconciler) createMembers(ctx context.Context, job *aiplatformv1alpha1.AIJob, d desired) (*failure, error) {
	for _, service := range d.services {
		if problem, err := r.create(ctx, job, service, 1); problem != nil || err != nil {
			return problem, err
		}
	}
	return r.createPods(ctx, job, d.members)
}

// createPods creates the pods of an attempt in parallel.
func (r *Reconciler) createPods(ctx context.Context, job *aiplatformv1alpha1.AIJob, members []assignedMember) (*failure, error) {
	class, err := r.priorityClass(ctx, job)
	if err != nil {
		return nil, err
	}
	var (
		group errgroup.Group
		mu    sync.Mutex
		first *failure
	)
	group.SetLimit(parallelCreates)
	for _, member := range members {
		group.Go(func() error {
			problem, err := r.create(ctx, job, buildPod(job, member.index, member.node, class, r.OperatorImage), int64(membersOf(job)))
			mu.Lock()
			defer mu.Unlock()
			if problem != nil && (first == nil || problem.kind == hopeless) { // what no further attempt would fix comes first
				first = problem
			}
			return err
		})
	}
	if err := group.Wait(); err != nil { // what the others were refused for is seen at the next try
		return nil, err
	}
	return first, nil
}

// create creates an object; count is how many of them the job needs.
func (r *Reconciler) create(ctx context.Context, job *aiplatformv1alpha1.AIJob, object client.Object, count int64) (*failure, error) {
	_, err := r.children.Create(ctx, job, object)
	var refusal *child.Refusal
	if errors.As(err, &refusal) {
		return failureOfRefusal(refusal, count), nil
	}
	return nil, err
}

// stopPod has a pod end, with its grace period unless the options say otherwise.
func (r *Reconciler) stopPod(ctx context.Context, pod *corev1.Pod, options ...client.DeleteOption) error {
	return r.children.Delete(ctx, pod, append(options, client.DisableReadYourWritesConsistency)...)
}

// jobs writes AIJobs.
func (r *Reconciler) jobs() child.Writer { return child.Writer{Client: r.Client, Direct: r.Direct} }

// forgetRequeue removes the annotation by which a user requeued the job, and notes how many retries came before.
func (r *Reconciler) forgetRequeue(ctx context.Context, job *aiplatformv1alpha1.AIJob) error {
	return r.jobs().Merge(ctx, job, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		aiplatformv1alpha1.AnnotationRequeue:       nil,
		aiplatformv1alpha1.AnnotationRetriesBefore: strconv.Itoa(int(job.Status.RetryCount)),
	}}})
}
