package trainingjob

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// final is what replica 0 said at its end.
type finalMessage struct {
	// owner is the UID of the Job that the pod belonged to.
	owner types.UID
	// created is when the pod was created.
	created metav1.Time
	message string
	// agent says that the pod had a checkpoint agent; sync and restored are its termination messages.
	agent          bool
	sync, restored string
}

// finalMessages keep the termination message of each job's replica 0. The kubelet deletes a stopped pod right after it has told how
// the pod ended, so the pod can be gone from the cache before its job is looked at; events bring its end all the same.
type finalMessages struct {
	last sync.Map // finalMessage by the types.NamespacedName of the job
}

// note remembers the termination message of a pod that has ended, if it is a replica 0.
func (f *finalMessages) note(pod *corev1.Pod) {
	ended, owner := workerProgram.Terminated(pod), metav1.GetControllerOf(pod)
	if ended == nil || owner == nil || replicaOf(pod) != "0" {
		return
	}
	job := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[mlv1.LabelTrainingJob]}
	if before := f.of(job); before != nil && before.created.After(pod.CreationTimestamp.Time) { // an event that comes late
		return
	}
	last := finalMessage{owner: owner.UID, created: pod.CreationTimestamp, message: ended.Message}
	last.sync, last.restored, last.agent = agentWords(pod)
	f.last.Store(job, last)
}

// of returns the termination message of a job's replica 0; nil when none has ended.
func (f *finalMessages) of(job types.NamespacedName) *finalMessage {
	if last, ok := f.last.Load(job); ok {
		found := last.(finalMessage)
		return &found
	}
	return nil
}

func (f *finalMessages) forget(job types.NamespacedName) { f.last.Delete(job) }
