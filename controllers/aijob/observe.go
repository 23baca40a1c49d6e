package aijob

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// podJobIndex is the cache index of pods by the name of their job.
const podJobIndex = "job"

// observe reads from the caches what exists of a job. Pods are read only: they are not copied.
func (r *Reconciler) observe(ctx context.Context, job *aiplatformv1alpha1.AIJob) (observed, error) {
	now := r.Clock.Now()
	key := client.ObjectKeyFromObject(job)
	o := observed{now: now, job: job, seen: r.pacer.Seen(key, now), written: r.pacer.Last(key)}
	o.busy, o.spare = r.load.busy(now)
	if err := r.observePods(ctx, &o); err != nil {
		return o, err
	}
	if err := r.observeHidden(ctx, &o); err != nil {
		return o, err
	}
	if isGang(job) && job.Status.Phase == aiplatformv1alpha1.AIJobScheduled {
		var service corev1.Service
		found, err := child.Find(ctx, r.children.Client, client.ObjectKey{Namespace: job.Namespace, Name: serviceName(job.Name)}, &service)
		if err != nil {
			return o, err
		}
		o.service = found && metav1.IsControlledBy(&service, job)
	}
	o.decision, o.decided = r.Decider.Decision(job.UID)
	return o, nil
}

// observePods reads the pods of a job, those included that this manager has just made. To list them consistently would mean to wait
// for what is being written for all other jobs.
func (r *Reconciler) observePods(ctx context.Context, o *observed) error {
	for {
		var pods corev1.PodList
		err := r.children.Client.List(ctx, &pods, client.InNamespace(o.job.Namespace), client.MatchingFields{podJobIndex: o.job.Name},
			client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		o.pods = nil
		for i := range pods.Items {
			if metav1.IsControlledBy(&pods.Items[i], o.job) {
				o.pods = append(o.pods, &pods.Items[i])
			}
		}
		more, err := r.awaitMade(ctx, o)
		if err != nil || !more {
			return err
		}
	}
}

// awaitMade waits until the cache shows the pods that this manager has created for a job, and says whether another list has more of them: a
// pod whose label was changed is in none.
func (r *Reconciler) awaitMade(ctx context.Context, o *observed) (bool, error) {
	if o.job.Status.Phase != aiplatformv1alpha1.AIJobScheduled {
		return false, nil
	}
	more := false
	for _, member := range missing(o) {
		var pod corev1.Pod
		key := client.ObjectKey{Namespace: o.job.Namespace, Name: nameOf(o.job, member)}
		found, err := child.Find(ctx, r.children.Client, key, &pod, client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, err
		}
		listed := found && pod.Labels[aiplatformv1alpha1.LabelAIJob] == o.job.Name
		more = more || (listed && metav1.IsControlledBy(&pod, o.job))
	}
	return more, nil
}

// missing are the members whose pods a job should have now and does not have in the cache.
func missing(o *observed) (members []int32) {
	there := map[string]bool{}
	for _, pod := range o.pods {
		there[pod.Name] = true
	}
	for member := range membersOf(o.job) {
		if !there[nameOf(o.job, member)] {
			members = append(members, member)
		}
	}
	return members
}

// observeHidden asks the API server for pods of a job that the cache lacks though they should long be there: they were deleted, or only
// lost the label by which the cache finds them, and still run.
func (r *Reconciler) observeHidden(ctx context.Context, o *observed) error {
	switch status := &o.job.Status; status.Phase {
	case aiplatformv1alpha1.AIJobRunning:
	case aiplatformv1alpha1.AIJobScheduled:
		if o.now.Before(timeOf(status.ScheduledTime, o.now).Add(bindPatience)) {
			return nil
		}
	default:
		return nil
	}
	for _, member := range missing(o) {
		var pod corev1.Pod
		found, err := child.Find(ctx, r.Direct, client.ObjectKey{Namespace: o.job.Namespace, Name: nameOf(o.job, member)}, &pod)
		if err != nil {
			return err
		}
		if found && metav1.IsControlledBy(&pod, o.job) {
			pod.Labels = buildPod(o.job, member, "", "").Labels
			o.pods = append(o.pods, &pod)
			o.hidden = true
		}
	}
	return nil
}

// priorityClass of a job's pods: that of its queue, when the cluster has it.
func (r *Reconciler) priorityClass(ctx context.Context, job *aiplatformv1alpha1.AIJob) (string, error) {
	if job.Spec.QueueName == "" {
		return "", nil
	}
	var queue aiplatformv1alpha1.AIJobQueue
	found, err := child.Find(ctx, r, client.ObjectKey{Name: job.Spec.QueueName}, &queue)
	name := queue.Spec.PriorityClass
	if !found || name == "" {
		return "", err
	}
	if found, err = child.Find(ctx, r.Direct, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{}); !found {
		return "", err
	}
	return name, nil
}
