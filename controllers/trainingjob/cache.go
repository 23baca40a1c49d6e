package trainingjob

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	labelselector "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// CachedObjects keep the manager's cache small: of built-in kinds it holds only the children of training jobs, and of
// pods and Jobs only what is read.
func CachedObjects() map[client.Object]cache.ByObject {
	selector, err := labelselector.Parse(mlv1.LabelTrainingJob)
	if err != nil {
		panic(err) // a constant of the API
	}
	objects := map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: selector, Transform: keepPods.Pods()}}
	for _, kind := range distinctKinds() {
		of := cache.ByObject{Label: selector}
		if _, job := kind.(*batchv1.Job); job {
			of.Transform = bareJob
		}
		objects[kind] = of
	}
	return objects
}

// keepPods is what is read of pods.
var keepPods = child.Keep{
	Annotations: []string{mlv1.AnnotationAttempt, batchv1.JobCompletionIndexAnnotation}, Init: true, Readiness: true,
}

// bareJob strips a Job of its pod template, which can change only while Kueue holds the Job, and of its counts, which its pods tell better.
func bareJob(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	child.StripMeta(&job.ObjectMeta, mlv1.AnnotationAttempt, mlv1.AnnotationStart, mlv1.AnnotationGangScheduler, mlv1.AnnotationIsolated,
		mlv1.AnnotationGeneration, mlv1.AnnotationSpecDigests)
	child.StripMeta(&job.Spec.Template.ObjectMeta, mlv1.AnnotationGeneration)
	job.Spec = batchv1.JobSpec{
		Parallelism: job.Spec.Parallelism, Completions: job.Spec.Completions, Suspend: job.Spec.Suspend,
		BackoffLimitPerIndex: job.Spec.BackoffLimitPerIndex,
		Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: job.Spec.Template.Annotations}},
	}
	job.Status = batchv1.JobStatus{Conditions: job.Status.Conditions}
	return job, nil
}

const (
	// podJobIndex is the cache index of worker pods by the name of their TrainingJob.
	podJobIndex = "training-job"
	// podNodeIndex is the cache index of worker pods by their node.
	podNodeIndex = "training-node"
	// nodeNoticeIndex is the cache index of the nodes that have a notice, under the key "yes". There are seldom any.
	nodeNoticeIndex = "preemption-notice"
	// jobSpotIndex is the cache index of TrainingJobs by the SpotInstanceVM that they name.
	jobSpotIndex = "spot-instance-vm"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	ofWorker := func(pod *corev1.Pod, key string) string {
		if !isWorker(pod) {
			return ""
		}
		return key
	}
	return errors.Join(
		addIndex(ctx, indexer, podJobIndex, &corev1.Pod{}, func(pod *corev1.Pod) string { return ofWorker(pod, pod.Labels[mlv1.LabelTrainingJob]) }),
		addIndex(ctx, indexer, podNodeIndex, &corev1.Pod{}, func(pod *corev1.Pod) string { return ofWorker(pod, pod.Spec.NodeName) }),
		addIndex(ctx, indexer, nodeNoticeIndex, &corev1.Node{}, func(node *corev1.Node) string {
			if _, noticed := nodenotice.FromNode(node, node.CreationTimestamp.Time); noticed {
				return "yes"
			}
			return ""
		}),
		addIndex(ctx, indexer, jobSpotIndex, &mlv1.TrainingJob{}, build.SpotName),
	)
}

// isWorker says whether a pod with the label of a job is one of its workers.
func isWorker(pod *corev1.Pod) bool {
	_, is := pod.Annotations[mlv1.AnnotationAttempt]
	return is
}

// addIndex has the cache find objects of a kind by their key; those with an empty one are in no list.
func addIndex[T client.Object](ctx context.Context, indexer client.FieldIndexer, name string, kind T, keyOf func(T) string) error {
	return reconciling.Index(ctx, indexer, kind, name, func(object T) []string {
		if key := keyOf(object); key != "" {
			return []string{key}
		}
		return nil
	})
}

// visibleChange lets those updates of pods and Jobs pass that changed something in what the cache keeps of them. About
// half of the updates in a pod's life are of what this package does not read.
func visibleChange() predicate.Predicate {
	return predicate.And(reconciling.Changed(func(before, after *corev1.Pod) bool {
		same := *before
		same.ResourceVersion, same.Spec = after.ResourceVersion, after.Spec // that a pod got its node is of interest only once it is lost
		return !equality.Semantic.DeepEqual(&same, after)
	}), reconciling.Changed(func(before, after *batchv1.Job) bool {
		same := *before
		same.ResourceVersion = after.ResourceVersion
		return !equality.Semantic.DeepEqual(&same, after)
	}))
}
