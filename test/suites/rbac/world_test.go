package rbac_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// world is a scenario's namespace. Kubernetes' own controllers run for real; the test plays the kubelet.
type world struct {
	*cluster

	manager   *manager
	namespace string
}

func (w *world) submit(b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	w.t.Helper()
	job := b.Namespace(w.namespace).ToCreate()
	require.NoError(w.t, w.Create(w.t.Context(), job))
	return job
}

// awaitJob waits until a job is as it should be, and reads it.
func (w *world) awaitJob(job *mlv1.TrainingJob, what string, is func(*mlv1.TrainingJobStatus) bool) {
	w.t.Helper()
	w.await("the job being "+what, func(ctx context.Context) (bool, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return false, err
		}
		if !is(&job.Status) {
			return false, fmt.Errorf("it is %s for %s: %s", job.Status.State, job.Status.Reason, job.Status.FailureReason)
		}
		return true, nil
	})
}

func (w *world) awaitState(job *mlv1.TrainingJob, state mlv1.State) {
	w.t.Helper()
	w.awaitJob(job, string(state), func(status *mlv1.TrainingJobStatus) bool { return status.State == state })
}

// awaitReason waits until a job is in its state for a reason.
func (w *world) awaitReason(job *mlv1.TrainingJob, reason string) {
	w.t.Helper()
	w.awaitJob(job, reason, func(status *mlv1.TrainingJobStatus) bool { return status.Reason == reason })
}

// pods waits for the pods that the Job controller makes for a job; those of Jobs in the list are not meant.
func (w *world) pods(job *mlv1.TrainingJob, not ...types.UID) []*corev1.Pod {
	w.t.Helper()
	var pods []*corev1.Pod
	w.await("the pods of the job", func(ctx context.Context) (bool, error) {
		var all corev1.PodList
		err := w.List(ctx, &all, client.InNamespace(w.namespace), client.MatchingLabels{"training-job": job.Name})
		if err != nil {
			return false, err
		}
		pods = nil
		for i := range all.Items {
			pod := &all.Items[i]
			if owner := metav1.GetControllerOf(pod); owner != nil && !contains(not, owner.UID) && pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			}
		}
		return len(pods) == int(job.Spec.NumWorkers), nil
	})
	return pods
}

func contains(all []types.UID, uid types.UID) bool {
	for _, one := range all {
		if one == uid {
			return true
		}
	}
	return false
}

// run makes pods run and be ready.
func (w *world) run(pods ...*corev1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		w.become(pod, corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: containerStatus(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
		})
	}
}

// end ends pods with an exit code.
func (w *world) end(code int32, pods ...*corev1.Pod) {
	w.t.Helper()
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	for _, pod := range pods {
		w.become(pod, corev1.PodStatus{Phase: phase, ContainerStatuses: containerStatus(pod, corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()},
		})})
	}
}

func containerStatus(pod *corev1.Pod, state corev1.ContainerState) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state}}
}

func (w *world) become(pod *corev1.Pod, status corev1.PodStatus) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status = status
		return w.Status().Update(w.t.Context(), pod)
	})
	require.NoError(w.t, err)
}

// workers waits for the Indexed Job of a job; the one with the UID is not meant.
func (w *world) workers(job *mlv1.TrainingJob, not types.UID) *batchv1.Job {
	w.t.Helper()
	var workers batchv1.Job
	w.await("the workers' Job", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: job.Name + "-training"}, &workers)
		return err == nil && workers.UID != not, client.IgnoreNotFound(err)
	})
	return &workers
}

// starts brings a job to Running.
func (w *world) starts(b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	w.t.Helper()
	job := w.submit(b)
	w.run(w.pods(job)...)
	w.awaitState(job, mlv1.StateRunning)
	return job
}

// trains brings a job of two workers from its creation to its end.
func (w *world) trains(name string) *mlv1.TrainingJob {
	w.t.Helper()
	return w.completes(builders.TrainingJob(name).Workers(2).Checkpoints())
}

func (w *world) completes(b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	w.t.Helper()
	job := w.starts(b)
	for _, pod := range w.pods(job) {
		w.await("the label of the pod", func(ctx context.Context) (bool, error) {
			err := w.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			return pod.Labels["replica-id"] != "", err
		})
		w.end(0, pod)
	}
	w.awaitState(job, mlv1.StateCompleted)
	return job
}

// change changes an object as a user does.
func (w *world) change(object client.Object, name string, change func()) {
	w.t.Helper()
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, object))
	before := object.DeepCopyObject().(client.Object)
	change()
	require.NoError(w.t, w.Patch(w.t.Context(), object, client.MergeFrom(before)))
}

// awaitChild waits until a child is as it should be.
func (w *world) awaitChild(object client.Object, is func() bool) {
	w.t.Helper()
	w.await(fmt.Sprintf("%T %s as it should be", object, object.GetName()), func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err == nil && is(), client.IgnoreNotFound(err)
	})
}

// awaitEnd waits until an object no longer exists.
func (w *world) awaitEnd(object client.Object) {
	w.t.Helper()
	w.await(fmt.Sprintf("the end of %T %s", object, object.GetName()), func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
