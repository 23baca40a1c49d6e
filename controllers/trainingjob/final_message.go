package trainingjob

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// finalMessages keep the pod of each job's replica 0 that has ended last, for its termination messages. The kubelet deletes a stopped pod
// right after it has told how the pod ended, so the pod can be gone from the cache before its job is looked at; events bring its end all
// the same.
type finalMessages struct {
	last sync.Map // *corev1.Pod by the types.NamespacedName of the job
}

// note remembers a pod that has ended, if it is a replica 0.
func (f *finalMessages) note(pod *corev1.Pod) {
	if workerProgram.Terminated(pod) == nil || metav1.GetControllerOf(pod) == nil || replicaOf(pod) != "0" {
		return
	}
	job := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[mlv1.LabelTrainingJob]}
	if before := f.of(job); before != nil && before.CreationTimestamp.After(pod.CreationTimestamp.Time) { // an event that comes late
		return
	}
	f.last.Store(job, pod)
}

// of returns the pod of a job's replica 0 that has ended last; nil when none has.
func (f *finalMessages) of(job types.NamespacedName) *corev1.Pod {
	last, _ := f.last.Load(job)
	pod, _ := last.(*corev1.Pod)
	return pod
}

func (f *finalMessages) forget(job types.NamespacedName) { f.last.Delete(job) }
