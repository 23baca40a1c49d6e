package trainingjob

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	labelselector "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// CachedObjects keep the manager's cache small: of built-in kinds it holds only the children of training jobs, and of
// pods and Jobs only what is read.
func CachedObjects() map[client.Object]cache.ByObject {
	selector, err := labelselector.Parse(mlv1.LabelTrainingJob)
	if err != nil {
		panic(err) // a constant of the API
	}
	children := cache.ByObject{Label: selector}
	pods, jobs := children, children
	pods.Transform, jobs.Transform = barePod, bareJob
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: pods, &batchv1.Job{}: jobs, &corev1.Service{}: children, &corev1.ConfigMap{}: children,
		&corev1.ServiceAccount{}: children, &corev1.PersistentVolumeClaim{}: children,
		&networkingv1.NetworkPolicy{}: children,
	}
}

// barePod strips a pod, before it enters the cache, of all that this package does not read: with thousands of pods
// most of the manager's memory would be their specs.
func barePod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	bareMeta(&pod.ObjectMeta, mlv1.AnnotationAttempt, batchv1.JobCompletionIndexAnnotation)
	pod.Finalizers, pod.Spec = nil, corev1.PodSpec{NodeName: pod.Spec.NodeName}
	bare := corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, PodIP: pod.Status.PodIP,
		StartTime: pod.Status.StartTime,
	}
	for _, condition := range pod.Status.Conditions {
		switch condition.Type {
		case corev1.PodReady, corev1.DisruptionTarget:
		case corev1.PodScheduled:
			if condition.Status == corev1.ConditionTrue { // only what hinders is of interest
				continue
			}
		default:
			continue
		}
		bare.Conditions = append(bare.Conditions, condition)
	}
	for _, status := range pod.Status.ContainerStatuses {
		bare.ContainerStatuses = append(bare.ContainerStatuses, corev1.ContainerStatus{
			Name: status.Name, Image: status.Image, State: status.State, Ready: status.Ready,
		})
	}
	for _, status := range pod.Status.InitContainerStatuses {
		bare.InitContainerStatuses = append(bare.InitContainerStatuses, corev1.ContainerStatus{
			Name: status.Name, Image: status.Image, State: status.State,
		})
	}
	pod.Status = bare
	return pod, nil
}

// bareJob strips a Job of its pod template, which cannot change, and of its counts, which its pods tell better.
func bareJob(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	bareMeta(&job.ObjectMeta, mlv1.AnnotationAttempt, mlv1.AnnotationStart, mlv1.AnnotationGangScheduler)
	job.Spec = batchv1.JobSpec{
		Parallelism: job.Spec.Parallelism, Completions: job.Spec.Completions, Suspend: job.Spec.Suspend,
		BackoffLimitPerIndex: job.Spec.BackoffLimitPerIndex,
	}
	job.Status = batchv1.JobStatus{Conditions: job.Status.Conditions}
	return job, nil
}

// visibleChange lets those updates of pods and Jobs pass that changed something in what the cache keeps of them. About
// half of the updates in a pod's life are of what this package does not read.
func visibleChange() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		switch before := update.ObjectOld.(type) {
		case *corev1.Pod:
			sameVersion := *before
			sameVersion.ResourceVersion = update.ObjectNew.GetResourceVersion()
			if after, ok := update.ObjectNew.(*corev1.Pod); ok { // that a pod got its node is of interest only once it is lost
				sameVersion.Spec = after.Spec
			}
			return !equality.Semantic.DeepEqual(&sameVersion, update.ObjectNew)
		case *batchv1.Job:
			sameVersion := *before
			sameVersion.ResourceVersion = update.ObjectNew.GetResourceVersion()
			return !equality.Semantic.DeepEqual(&sameVersion, update.ObjectNew)
		default:
			return true
		}
	}}
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
