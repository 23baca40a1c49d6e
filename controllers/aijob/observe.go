package aijob

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// podJobIndex is the cache index of pods by the name of their job.
const podJobIndex = "job"

// observe reads from the caches what exists of a job. Pods are read only: they are not copied.
func (r *Reconciler) observe(ctx context.Context, job *aiplatformv1alpha1.AIJob) (observed, error) {
	now := r.Clock.Now()
	key := client.ObjectKeyFromObject(job)
	o := observed{now: now, job: job, seen: r.pacer.Seen(key, now), written: r.pacer.Last(key), defaultResources: r.DefaultResources}
	o.busy, o.spare = r.load.busy(now)
	if err := r.observePods(ctx, &o); err != nil {
		return o, err
	}
	if err := r.observeHidden(ctx, &o); err != nil {
		return o, err
	}
	o.peersLost = r.peersLost.Seen(key, &program, o.pods, now)
	if err := r.observeNodes(ctx, &o); err != nil {
		return o, err
	}
	if err := r.observeServices(ctx, &o); err != nil {
		return o, err
	}
	o.decision, o.decided = r.Decider.Decision(job.UID)
	err := r.observeClaims(ctx, &o)
	return o, err
}

// observeServices finds out which Services a job lacks that its pods are found by. Members of a gang that runs have found each other; what a
// job serves must be found as long as it runs.
func (r *Reconciler) observeServices(ctx context.Context, o *observed) error {
	if phase := o.job.Status.Phase; phase != aiplatformv1alpha1.AIJobScheduled && (phase != aiplatformv1alpha1.AIJobRunning || o.job.Spec.Service == nil) {
		return nil
	}
	for _, wanted := range buildServices(o.job) {
		service, err := reconciling.Get[corev1.Service](ctx, r.children.Client, wanted.Namespace, wanted.Name)
		if err != nil {
			return err
		}
		if service == nil || !metav1.IsControlledBy(service, o.job) {
			o.missingServices = append(o.missingServices, wanted)
		}
	}
	return nil
}

// observePods reads the pods of a job, those included that this manager has just made. To list them consistently would mean to wait
// for what is being written for all other jobs.
func (r *Reconciler) observePods(ctx context.Context, o *observed) error {
	for {
		pods, err := reconciling.List[*corev1.Pod](ctx, r.children.Client, &corev1.PodList{}, client.InNamespace(o.job.Namespace),
			client.MatchingFields{podJobIndex: o.job.Name}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
		if err != nil {
			return err
		}
		o.pods, o.former = nil, nil
		for _, pod := range pods {
			switch owner := metav1.GetControllerOf(pod); {
			case owner == nil:
			case owner.UID == o.job.UID:
				o.pods = append(o.pods, pod)
			case owner.Kind == kindAIJob && !podend.IsEnded(pod):
				o.former = append(o.former, pod)
			}
		}
		if o.job.Status.Phase != aiplatformv1alpha1.AIJobScheduled {
			return nil
		}
		more := false
		// To read a pod waits until the cache shows it if this manager has created it. One whose label was changed is in no list.
		err = eachMissing(ctx, r.children.Client, o, func(_ int32, pod *corev1.Pod) {
			more = more || pod.Labels[aiplatformv1alpha1.LabelAIJob] == o.job.Name
		}, client.UnsafeDisableDeepCopy)
		if err != nil || !more {
			return err
		}
	}
}

// eachMissing reads, for the members whose pods a job should have now and that were not listed, the pods that there are.
func eachMissing(ctx context.Context, from client.Reader, o *observed, tell func(int32, *corev1.Pod), options ...client.GetOption) error {
	listed := map[string]bool{}
	for _, pod := range o.pods {
		listed[pod.Name] = true
	}
	for member := range membersOf(o.job) {
		key := client.ObjectKey{Namespace: o.job.Namespace, Name: nameOf(o.job, member)}
		if listed[key.Name] {
			continue
		}
		var pod corev1.Pod
		found, err := child.Find(ctx, from, key, &pod, options...)
		if err != nil {
			return err
		}
		if found && metav1.IsControlledBy(&pod, o.job) {
			tell(member, &pod)
		}
	}
	return nil
}

// observeHidden asks the API server for pods of a job that the cache lacks though they should long be there: they were deleted, or only
// lost the label by which the cache finds them, and still run.
func (r *Reconciler) observeHidden(ctx context.Context, o *observed) error {
	switch status := &o.job.Status; status.Phase {
	case aiplatformv1alpha1.AIJobRunning:
	case aiplatformv1alpha1.AIJobScheduled:
		if o.now.Before(timeOf(status.ScheduledTime, o.now).Add(queueing.Patience(reasons.Unschedulable))) {
			return nil
		}
	default:
		return nil
	}
	return eachMissing(ctx, r.Direct, o, func(member int32, pod *corev1.Pod) {
		pod.Labels = buildPod(o.job, member, "", "", "").Labels
		o.pods, o.hidden = append(o.pods, pod), true
	})
}

// priorityClass of a job's pods: that of its queue, when the cluster has it.
func (r *Reconciler) priorityClass(ctx context.Context, job *aiplatformv1alpha1.AIJob) (string, error) {
	if job.Spec.QueueName == "" {
		return "", nil
	}
	queue, err := reconciling.Get[aiplatformv1alpha1.AIJobQueue](ctx, r, "", job.Spec.QueueName)
	if queue == nil || queue.Spec.PriorityClass == "" {
		return "", err
	}
	class, err := reconciling.Get[schedulingv1.PriorityClass](ctx, r.Direct, "", queue.Spec.PriorityClass)
	if class == nil {
		return "", err
	}
	return class.Name, nil
}
