package day

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// runJobs is the Job controller, for Jobs of one pod.
func (c *cluster) runJobs(ctx context.Context, v *view) bool {
	did := false
	for _, job := range v.jobs {
		did = c.runJob(ctx, job, v.of[job.UID]) || did
	}
	return did
}

func (c *cluster) runJob(ctx context.Context, job *batchv1.Job, pods []*corev1.Pod) bool {
	if job.DeletionTimestamp != nil || finished(job) {
		return false
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		did := false
		for _, pod := range pods {
			if !ended(pod) && pod.DeletionTimestamp == nil {
				did = c.try(c.client.Delete(ctx, pod)) || did
			}
		}
		return c.setSuspended(ctx, job) || did
	}
	for _, pod := range pods {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			return c.finish(ctx, job, batchv1.JobComplete, "CompletionsReached", "")
		case pod.Status.Phase == corev1.PodFailed && disrupted(pod) && job.Spec.PodFailurePolicy != nil:
			return c.finish(ctx, job, batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy, "the pod was disrupted")
		case pod.Status.Phase == corev1.PodFailed:
			return c.finish(ctx, job, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "the pod failed")
		}
	}
	if len(pods) > 0 {
		return false
	}
	if c.told[job.UID] != "" { // it had a pod, which was removed without a trace
		return c.finish(ctx, job, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "the pod was deleted")
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-pod", Namespace: job.Namespace, Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: job.Spec.Template.Spec,
	}
	if !c.try(c.client.Create(ctx, pod, writer)) {
		return false
	}
	c.told[job.UID] = pod.Name
	return true
}

// setSuspended says of a Job that it is suspended.
func (c *cluster) setSuspended(ctx context.Context, job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if condition.Type == batchv1.JobSuspended && condition.Status == corev1.ConditionTrue {
			return false
		}
	}
	now := metav1.NewTime(c.world.clock.Now())
	job = job.DeepCopy()
	job.Status.StartTime = nil
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: batchv1.JobSuspended, Status: corev1.ConditionTrue, Reason: "JobSuspended", Message: "Job suspended",
		LastTransitionTime: now, LastProbeTime: now,
	})
	return c.try(c.client.Status().Update(ctx, job))
}

func finished(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func disrupted(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// finish ends a Job in the two steps that the API server insists on.
func (c *cluster) finish(ctx context.Context, job *batchv1.Job, how batchv1.JobConditionType, reason, message string) bool {
	now := metav1.NewTime(c.world.clock.Now())
	job = job.DeepCopy()
	before := batchv1.JobFailureTarget
	if how == batchv1.JobComplete {
		before = batchv1.JobSuccessCriteriaMet
		job.Status.Succeeded, job.Status.CompletionTime = 1, &now
	} else {
		job.Status.Failed = 1
	}
	if job.Status.StartTime == nil {
		job.Status.StartTime = &now
	}
	if job.Status.UncountedTerminatedPods == nil {
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	for _, kind := range []batchv1.JobConditionType{before, how} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: now, LastProbeTime: now,
		})
	}
	return c.try(c.client.Status().Update(ctx, job))
}

// collect removes pods whose Job is gone, and pods whose node is.
func (c *cluster) collect(ctx context.Context, v *view) bool {
	did := false
	for _, pod := range v.pods {
		if owner := metav1.GetControllerOf(pod); owner != nil && v.jobs[owner.UID] == nil && pod.DeletionTimestamp == nil {
			var job batchv1.Job
			err := c.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, &job)
			if err != nil || job.UID != owner.UID {
				did = c.try(c.client.Delete(ctx, pod)) || did
				continue
			}
		}
		if pod.Spec.NodeName == "" || v.nodes[pod.Spec.NodeName] != nil {
			continue
		}
		did = c.collectLost(ctx, pod) || did
	}
	return did
}

// collectLost ends a pod whose node does not exist any more.
func (c *cluster) collectLost(ctx context.Context, pod *corev1.Pod) bool {
	if !ended(pod) {
		failed := pod.DeepCopy()
		failed.Status.Phase = corev1.PodFailed
		failed.Status.Conditions = append(failed.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
			LastTransitionTime: metav1.NewTime(c.world.clock.Now()),
		})
		return c.try(c.client.Status().Update(ctx, failed))
	}
	// The Job controller holds a pod until it has counted it.
	if owner := metav1.GetControllerOf(pod); owner != nil {
		var job batchv1.Job
		key := client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}
		if err := c.client.Get(ctx, key, &job); err == nil && job.UID == owner.UID && !finished(&job) && job.DeletionTimestamp == nil {
			return false
		}
	}
	return c.try(c.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
}

// schedule gives pods a node, or says that there is none.
func (c *cluster) schedule(ctx context.Context, v *view) bool {
	free := map[string]int64{}
	for name, node := range v.nodes {
		gpus := node.Status.Allocatable[gpuName]
		if !node.Spec.Unschedulable && ready(node) && len(node.Spec.Taints) == 0 {
			free[name] = gpus.Value()
		}
	}
	for _, pod := range v.pods {
		if pod.Spec.NodeName != "" && !ended(pod) {
			free[pod.Spec.NodeName]--
		}
	}
	did := false
	for _, pod := range v.pods {
		if pod.Spec.NodeName != "" || ended(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		did = c.place(ctx, pod, free) || did
	}
	return did
}

// place a pod. Each takes a whole GPU, and each node has one, so that replicas are on nodes of their own.
func (c *cluster) place(ctx context.Context, pod *corev1.Pod, free map[string]int64) bool {
	best := ""
	for name, gpus := range free {
		if gpus > 0 && (best == "" || name < best) {
			best = name
		}
	}
	if best != "" {
		free[best]--
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: best}}
		return c.try(c.client.SubResource("binding").Create(ctx, pod, binding))
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return false
		}
	}
	waiting := pod.DeepCopy()
	waiting.Status.Conditions = append(waiting.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message:            fmt.Sprintf("0/%d nodes are available: Insufficient nvidia.com/gpu.", len(free)),
		LastTransitionTime: metav1.NewTime(c.world.clock.Now()),
	})
	return c.try(c.client.Status().Update(ctx, waiting))
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
