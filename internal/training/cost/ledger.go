package cost

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// Ledger keeps the usages of worker pods that may be gone from the cache before their cost is written. It is safe for concurrent use.
type Ledger struct {
	// Program is the container whose end is that of its pod.
	Program *podend.Program

	mutex sync.Mutex
	jobs  map[types.NamespacedName]map[types.UID]Usage
}

// Note remembers the usage of a pod as an event shows it.
func (l *Ledger) Note(pod *corev1.Pod, now time.Time) {
	if _, ours := pod.Annotations[mlv1.AnnotationAttempt]; !ours {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.enter(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[mlv1.LabelTrainingJob]}, pod, now)
}

func (l *Ledger) enter(job types.NamespacedName, pod *corev1.Pod, now time.Time) {
	if pod.Status.StartTime == nil || pod.Spec.NodeName == "" {
		return
	}
	known := l.jobs[job][pod.UID]
	next := Usage{Node: pod.Spec.NodeName, Start: pod.Status.StartTime.Time, End: known.End}
	switch ended := l.Program.Terminated(pod); {
	case ended != nil && !ended.FinishedAt.IsZero():
		next.End = ended.FinishedAt.Time
	case next.End.IsZero() && podend.IsEnded(pod):
		next.End = now
	}
	if l.jobs == nil {
		l.jobs = map[types.NamespacedName]map[types.UID]Usage{}
	}
	if l.jobs[job] == nil {
		l.jobs[job] = map[types.UID]Usage{}
	}
	l.jobs[job][pod.UID] = next
}

// Usages are those that are not yet settled, without their prices. A pod that is no longer there has ended, now at the latest.
func (l *Ledger) Usages(job *mlv1.TrainingJob, pods []*corev1.Pod, now time.Time) []Usage {
	key := client.ObjectKeyFromObject(job)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	present := map[types.UID]bool{}
	for _, pod := range pods {
		present[pod.UID] = true
		l.enter(key, pod, now)
	}
	var list []Usage
	for uid, u := range l.jobs[key] {
		if u.Start.Before(job.CreationTimestamp.Time) { // of an earlier job of this name
			continue
		}
		if u.End.IsZero() && !present[uid] {
			u.End = now
			l.jobs[key][uid] = u
		}
		list = append(list, u)
	}
	return list
}

// Settle forgets the usages that had ended by the time of the cost that was written. Without a cost there is nothing to
// keep them for.
func (l *Ledger) Settle(job types.NamespacedName, written *mlv1.CostStatus, now time.Time) {
	until := now
	if written != nil && written.Time != nil {
		until = written.Time.Time
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	maps.DeleteFunc(l.jobs[job], func(_ types.UID, u Usage) bool { return !u.End.IsZero() && !u.End.After(until) })
	if len(l.jobs[job]) == 0 {
		delete(l.jobs, job)
	}
}

// Forget a job, which no longer exists.
func (l *Ledger) Forget(job types.NamespacedName) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.jobs, job)
}
