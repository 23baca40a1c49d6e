package trainingjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// followSource writes down the code that the workers were started with first. A worker with other code is a failure.
func (p *planner) followSource(pods []*corev1.Pod) *failure {
	is, other, message := source.Follow(p.job.Spec.Source, p.status.Source, pods, func(pod *corev1.Pod) string { return failureOf(pod).worker })
	if p.status.Source = is; other == nil {
		return nil
	}
	found := failureOf(other)
	found.End = podend.End{Reason: reasons.SourceChanged, Message: message}
	return &found
}

// fetching says that a worker fetches its code; empty when none does.
func (o *observed) fetching(pods []*corev1.Pod) (reason, message string) {
	for _, pod := range pods {
		if source.IsFetching(pod) {
			return reasons.WorkersStarting, fmt.Sprintf("worker %s fetches its code from %s", replicaOf(pod), o.job.Spec.Source.Origin())
		}
	}
	return "", ""
}

// unfetched is how often in a row the code could not be fetched; 4 where that was often.
func unfetched(status *mlv1.TrainingJobStatus) int {
	if status.LastFailure == nil {
		return 1
	}
	times := 1
	for i := range status.EarlierFailures {
		if !source.IsTemporary(status.EarlierFailures[i].Reason) {
			break
		}
		times++
	}
	return times
}

// leaveForSource gives the place in a queue back to other jobs while the code cannot be fetched.
func (p *planner) leaveForSource(found *failure) bool {
	if !source.IsTemporary(found.Reason) || build.QueueName(p.job) == "" || !build.IsAdmitted(&p.status) || p.status.Admission.Releasing != "" {
		return false
	}
	p.recordFailure(*found)
	p.evict(&eviction{found.Reason, found.Message, true})
	return true
}
