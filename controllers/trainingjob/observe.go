package trainingjob

import (
	"context"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/training/cost"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
)

// observed is all that a plan is made from.
type observed struct {
	now      time.Time
	settings build.Settings

	job      *mlv1.TrainingJob
	children map[string]client.Object // that exist, by childKey
	workers  *batchv1.Job             // of the children; nil when it does not exist
	pods     []*corev1.Pod

	claims       []claims.Claim          // of the job, while its pods have no nodes; those included that it is going to create
	claimSays    string                  // the last event of the claim of the checkpoints, while pods wait for it
	missingClaim string                  // a claim that the spec names and that does not exist
	resume       *mlv1.ResumeSource      // where the job that resumeFrom names keeps its checkpoints; nil when that is not known
	read         progress.Reading        // of what replica 0 and its agent report
	final        *corev1.Pod             // of replica 0 that has ended last; it may be gone
	peersLost    map[types.UID]time.Time // when pods were first seen to have ended that lost another
	usages       []cost.Usage            // of nodes, since the cost was last written
	priceUnread  bool                    // of one of these nodes: nothing can be charged yet

	gang     observedGang
	kueue    bool              // the cluster serves Kueue's kinds
	held     *batchv1.Job      // the workers with their pod template, while Kueue holds them and the spec was edited
	decision queueing.Decision // of the AIJobQueue that the spec names

	nodes           map[string]*corev1.Node      // those of doubtful pods, by name; nil for one that is gone
	notices         map[string]nodenotice.Notice // of all nodes that go, by name
	unnoticed       map[string]bool              // nodes of the status that are there and have no notice any more
	spotVM          *spotv1alpha1.SpotInstanceVM // that the spec names; nil when it does not exist
	creationRefused string                       // why the Job controller could not create pods; empty when not known
}

// observe reads what exists of a job, from the cache where that has it.
func (r *Reconciler) observe(ctx context.Context, job *mlv1.TrainingJob) (observed, error) {
	o := observed{now: r.Clock.Now(), settings: r.Settings, job: job}
	for _, read := range []func(context.Context, *observed) error{
		r.observeChildren, r.observeLostWorkers, r.observeHeld, r.observeResumeSource, r.observePods, r.observeUnseenPods, r.observeClaims, r.observeUnbound, r.observeCost, r.observeQueue,
		r.observeGang, r.observeNodes, r.observeNotices, r.observeSpot, r.observeRefusal,
	} {
		if err := read(ctx, &o); err != nil {
			return o, err
		}
	}
	if r.Admission != nil && admissionState(job) != queueing.Uninvolved {
		o.decision, _ = r.Admission.Decision(job.UID)
	}
	o.final = r.finalMessages.of(client.ObjectKeyFromObject(job))
	o.peersLost = r.peersLost.Seen(client.ObjectKeyFromObject(job), &workerProgram, o.pods, o.now)
	o.read = r.Progress.Latest(client.ObjectKeyFromObject(job))
	return o, nil
}

// confirm returns a conflict if a job whose workers are about to be started has changed since it was read, or if pods of an earlier start run
// that the cache does not show: it may be behind.
func (r *Reconciler) confirm(ctx context.Context, job *mlv1.TrainingJob) error {
	if err := reconciling.Confirm(ctx, r.Direct, job); err != nil || job.Status.StartCount == 0 {
		return err
	}
	pods, err := reconciling.List[*corev1.Pod](ctx, r.Direct, &corev1.PodList{}, client.InNamespace(job.Namespace),
		client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
	if err != nil {
		return err
	}
	now := r.Clock.Now()
	for _, pod := range pods {
		if isWorker(pod) && !podend.IsEnded(pod) && !podend.IsOverdue(now, pod) {
			return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("it is of an earlier start, and has not ended"))
		}
	}
	return nil
}

// observeLostWorkers reads the Job of a running training from the API server when it is not in the cache: it was deleted, or only lost the
// label by which the cache finds it.
func (r *Reconciler) observeLostWorkers(ctx context.Context, o *observed) error {
	if o.workers != nil || o.job.Status.State != mlv1.StateRunning {
		return nil
	}
	workers, err := reconciling.Get[batchv1.Job](ctx, r.Direct, o.job.Namespace, build.WorkersName(o.job))
	if workers != nil && metav1.IsControlledBy(workers, o.job) {
		o.workers = workers
	}
	return err
}

// observeResumeSource finds out where the job that resumeFrom names keeps its checkpoints, once it has one. What is known
// stays so: the checkpoints outlive their job.
func (r *Reconciler) observeResumeSource(ctx context.Context, o *observed) error {
	name := build.ResumeJob(o.job)
	if name == "" {
		return nil
	}
	edited := o.job.Status.StartCount == 0 && o.job.Status.ObservedGeneration != o.job.Generation
	if o.resume = o.job.Status.ResumeSource; o.resume != nil && !edited {
		return nil
	}
	other, err := reconciling.Get[mlv1.TrainingJob](ctx, r, o.job.Namespace, name)
	if other != nil && build.HasCheckpoint(&other.Status) {
		o.resume = build.SourceOf(other)
	}
	return err
}

func (r *Reconciler) observePods(ctx context.Context, o *observed) (err error) {
	o.pods, err = reconciling.List[*corev1.Pod](ctx, r, &corev1.PodList{}, client.InNamespace(o.job.Namespace),
		client.MatchingFields{podJobIndex: o.job.Name}, client.UnsafeDisableDeepCopy)
	return err
}

// observeUnseenPods reads the pods of workers whose Job has failed from the API server when the cache shows none that did: it may be behind, and
// the condition of the Job does not tell a pod that was deleted from one that was killed.
func (r *Reconciler) observeUnseenPods(ctx context.Context, o *observed) (err error) {
	if o.workers == nil || isFinished(&o.job.Status) || build.AttemptOf(o.workers) < o.job.Status.RestartCount || jobFailure(o.workers) == nil ||
		slices.ContainsFunc(o.workerPods(), podend.HasFailed) {
		return nil
	}
	o.pods, err = reconciling.List[*corev1.Pod](ctx, r.Direct, &corev1.PodList{}, client.InNamespace(o.job.Namespace),
		client.MatchingLabels{mlv1.LabelTrainingJob: o.job.Name})
	podend.SetPhases(o.pods)
	return err
}

// workerPods are the pods of the Job; none when there is no Job.
func (o *observed) workerPods() []*corev1.Pod {
	if o.workers == nil {
		return nil
	}
	return only(o.pods, func(pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, o.workers) })
}

// only are those of the pods that are so; nil for none.
func only(pods []*corev1.Pod, is func(*corev1.Pod) bool) []*corev1.Pod {
	var list []*corev1.Pod
	for _, pod := range pods {
		if is(pod) {
			list = append(list, pod)
		}
	}
	return list
}
