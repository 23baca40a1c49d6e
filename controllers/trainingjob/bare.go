package trainingjob

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// BarePod strips a pod, before it enters the cache, of all that this package does not read: with thousands of pods
// most of the manager's memory would be their specs.
func BarePod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	bareMeta(&pod.ObjectMeta, mlv1.AnnotationAttempt, batchv1.JobCompletionIndexAnnotation)
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	bare := corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, PodIP: pod.Status.PodIP,
	}
	for _, condition := range pod.Status.Conditions {
		switch condition.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.DisruptionTarget:
			bare.Conditions = append(bare.Conditions, condition)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		bare.ContainerStatuses = append(bare.ContainerStatuses, corev1.ContainerStatus{
			Name: status.Name, Image: status.Image, State: status.State,
		})
	}
	pod.Status = bare
	return pod, nil
}

// BareJob strips a Job of its pod template, which cannot change.
func BareJob(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	bareMeta(&job.ObjectMeta, mlv1.AnnotationAttempt)
	job.Spec = batchv1.JobSpec{Parallelism: job.Spec.Parallelism, Completions: job.Spec.Completions}
	return job, nil
}

func bareMeta(meta *metav1.ObjectMeta, annotations ...string) {
	meta.ManagedFields = nil
	kept := map[string]string{}
	for _, name := range annotations {
		if value, ok := meta.Annotations[name]; ok {
			kept[name] = value
		}
	}
	meta.Annotations = kept
}
