package aijob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// fieldOwner is who the API server notes as the writer.
const fieldOwner = client.FieldOwner("spot-training-operator")

// atOnce is how many pods of a gang are created side by side.
const atOnce = 32

// errLeftover says that a pod of an earlier AIJob of the same name is still there.
var errLeftover = errors.New("an object of an earlier AIJob of this name is still being deleted")

// apply does what the plan wants. Every step can be done again: a crash after any of them leads to the same. It returns what the
// API server refuses.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) (*failure, error) {
	for _, pod := range append(d.stop, d.prune...) {
		if err := r.remove(ctx, pod); err != nil {
			return nil, err
		}
	}
	for _, pod := range d.force {
		if err := r.remove(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return nil, err
		}
	}
	if d.requeued {
		return nil, r.forgetRequeue(ctx, o.job)
	}
	if d.remove {
		return nil, r.removeJob(ctx, o.job)
	}
	if len(d.members) == 0 {
		return nil, nil
	}
	if d.service {
		if problem, err := r.createService(ctx, o.job); problem != nil || err != nil {
			return problem, err
		}
	}
	return r.createPods(ctx, o.job, d.members)
}

// createPods makes the pods of a try side by side.
func (r *Reconciler) createPods(ctx context.Context, job *aiplatformv1alpha1.AIJob, members []placed) (*failure, error) {
	class, err := r.priorityClass(ctx, job)
	if err != nil {
		return nil, err
	}
	var (
		group    errgroup.Group
		mu       sync.Mutex
		problems []*failure
	)
	group.SetLimit(atOnce)
	for _, member := range members {
		group.Go(func() error {
			problem, err := r.createPod(ctx, job, buildPod(job, member.member, member.node, class))
			if problem != nil {
				mu.Lock()
				problems = append(problems, problem)
				mu.Unlock()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, problem := range problems { // what no further try would mend goes first
		if problem.kind == hopeless {
			return problem, nil
		}
	}
	if len(problems) > 0 {
		return problems[0], nil
	}
	return nil, nil
}

func (r *Reconciler) createPod(ctx context.Context, job *aiplatformv1alpha1.AIJob, pod *corev1.Pod) (*failure, error) {
	err := r.children.Create(ctx, pod, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return r.inTheWay(ctx, job, pod, &corev1.Pod{})
	}
	return refusalOf(err, int64(membersOf(job)), "pod "+pod.Name)
}

func (r *Reconciler) createService(ctx context.Context, job *aiplatformv1alpha1.AIJob) (*failure, error) {
	service := buildService(job)
	err := r.children.Create(ctx, service, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return r.inTheWay(ctx, job, service, &corev1.Service{})
	}
	return refusalOf(err, 1, "Service "+service.Name)
}

// inTheWay says what is to be done about an object that has the name of a new one.
func (r *Reconciler) inTheWay(ctx context.Context, job *aiplatformv1alpha1.AIJob, wanted, existing client.Object) (*failure, error) {
	kind := fmt.Sprintf("%T", wanted)[len("*v1."):]
	err := r.Direct.Get(ctx, client.ObjectKeyFromObject(wanted), existing)
	if apierrors.IsNotFound(err) {
		return nil, errLeftover
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, wanted.GetName(), err)
	}
	if metav1.IsControlledBy(existing, job) {
		return nil, nil // the cache will show it
	}
	if owner := metav1.GetControllerOf(existing); owner != nil && owner.Kind == kindAIJob && owner.Name == job.Name {
		return nil, errLeftover
	}
	return &failure{kind: refused, reason: aiplatformv1alpha1.ReasonObjectConflict, message: fmt.Sprintf(
		"%s %s exists and does not belong to this job: delete or rename it, or give this job another name", kind, wanted.GetName())}, nil
}

// remove has a pod end, with its grace period unless the options say otherwise: the one that was seen, not one of the same name
// that came after it.
func (r *Reconciler) remove(ctx context.Context, pod *corev1.Pod, options ...client.DeleteOption) error {
	uid := pod.UID
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	options = append(options, client.Preconditions{UID: &uid}, client.DisableReadYourWritesConsistency)
	err := r.children.Delete(ctx, target, options...)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// removeJob deletes a job whose time to live is over, and its pods with it.
func (r *Reconciler) removeJob(ctx context.Context, job *aiplatformv1alpha1.AIJob) error {
	uid := job.UID
	err := r.Delete(ctx, job.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the AIJob: %w", err)
	}
	return nil
}

// forgetRequeue removes the annotation by which a job came back, and notes how many retries came before.
func (r *Reconciler) forgetRequeue(ctx context.Context, job *aiplatformv1alpha1.AIJob) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": job.UID, "annotations": map[string]any{
		aiplatformv1alpha1.AnnotationRequeue:       nil,
		aiplatformv1alpha1.AnnotationRetriesBefore: strconv.Itoa(int(job.Status.RetryCount)),
	}}})
	if err != nil {
		return fmt.Errorf("encode the annotations: %w", err)
	}
	target := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}}
	err = r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove the annotation %s: %w", aiplatformv1alpha1.AnnotationRequeue, err)
	}
	return nil
}
