package trainingjob

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// elasticPatience is how long an elastic job waits for all its workers before it counts as running with fewer.
const elasticPatience = 30 * time.Second

// planElastic follows workers that can come and go one by one: the training goes on as long as replica 0, which gathers
// the others and keeps the checkpoints, and enough of the others are there.
func (p *planner) planElastic(pods []*corev1.Pod) {
	p.giveUpOverdue(pods)
	members := membersOf(pods, p.job.Spec.NumWorkers)
	var found *failure
	if slices.ContainsFunc(members, podend.HasFailed) || len(pods) == 0 {
		found = findFailure(p.workers, members, plainSecrets(p.job)...)
	}
	if found != nil {
		if found = p.blame(found, members); found == nil {
			return
		}
	}
	if ends := p.countFailures(pods); ends != nil {
		if !p.mustSettle(failure{}, *ends) {
			p.fail(ends.reason, ends.message)
		}
		return // once that is written, planFinished deletes the Job, which would go on replacing its pods
	}
	if found != nil {
		// As it was written: a failure is reported once.
		said := redact.Text(found.Message, plainSecrets(p.job)...)
		if p.status.FailureReason != said || p.status.LastFailure == nil {
			p.status.FailureReason = said
			p.recordFailure(*found)
		}
		if !canGoOn(p.job, members) {
			p.restartElastic(*found)
			return
		}
	}
	if p.leaveOneByOne(members) {
		return
	}
	p.serve(members)
	p.status.Workers.Active, p.status.Workers.Succeeded = countWorkers(slices.DeleteFunc(slices.Clone(members), podend.HasFailed))
	missing := p.status.Workers.Active+p.status.Workers.Succeeded < p.status.Workers.Total
	switch {
	case !missing && !hasLeavers(pods, p.job.Spec.NumWorkers):
		p.setRunning(reasons.WorkersRunning, fmt.Sprintf("all %d workers run", p.status.Workers.Total))
	case p.status.State == mlv1.StateRunning || p.mayBegin(members):
		p.setRunning(p.describeIncomplete(members, found))
	default:
		p.setInitializing(p.describeWaiting(members))
	}
}

// giveUpOverdue reports workers as failed whose kubelet is gone, so that they are replaced.
func (p *planner) giveUpOverdue(pods []*corev1.Pod) {
	for _, pod := range pods {
		if left, ends := podend.OverdueIn(p.now, pod); ends && left > 0 {
			p.lookAgain(left)
		} else if ends {
			p.dead = append(p.dead, pod)
		}
	}
}

// isResizable says whether the pods of the Job can come and go one by one. It is asked of the Job and not of the spec,
// because an earlier version of the operator may have made it.
func isResizable(workers *batchv1.Job) bool { return workers.Spec.BackoffLimitPerIndex != nil }

// membersOf are the pods that stand for the replicas from 0 to size: of those with the same index the newest.
func membersOf(pods []*corev1.Pod, size int32) []*corev1.Pod {
	newest := map[int32]*corev1.Pod{}
	for _, pod := range pods {
		index, ok := indexOf(pod)
		if !ok || index >= size {
			continue
		}
		if before := newest[index]; before == nil || compareAge(pod, before) > 0 {
			newest[index] = pod
		}
	}
	var members []*corev1.Pod
	for index := range size {
		if pod := newest[index]; pod != nil {
			members = append(members, pod)
		}
	}
	return members
}

// compareAge orders the pods of a replica by when they were made. The API server's times are of whole seconds: within
// one, the pod that still lives is the later one.
func compareAge(a, b *corev1.Pod) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(isAlive(a), isAlive(b)),
		cmp.Compare(a.Name, b.Name),
	)
}

func isAlive(pod *corev1.Pod) int {
	if podend.HasFailed(pod) {
		return 0
	}
	return 1
}

func indexOf(pod *corev1.Pod) (int32, bool) {
	index, err := strconv.ParseInt(replicaOf(pod), 10, 32)
	return int32(index), err == nil
}

// hasLeavers says whether pods still run that the present size has no place for.
func hasLeavers(pods []*corev1.Pod, size int32) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		index, ok := indexOf(pod)
		return ok && index >= size && pod.Status.Phase == corev1.PodRunning
	})
}

// countFailures counts the workers that failed by themselves and were, or are being, replaced; it returns how the job
// ends when one of these failures does not allow that. Workers that only lost another are not counted: it is.
func (p *planner) countFailures(pods []*corev1.Pod) *outcome {
	var failures []failure
	for _, pod := range pods {
		if index, ok := indexOf(pod); !ok || index >= p.job.Spec.NumWorkers || !isEnding(pod) || workerProgram.ExitCode(pod) == podend.ExitPeerLost {
			continue
		}
		if how := p.blameNotice(podFailure(pod, plainSecrets(p.job)...)); !how.Lost {
			failures = append(failures, *how)
		}
	}
	known := p.status.Workers.Failed // of this attempt; both counts are written together
	p.status.Workers.Failed = max(known, int32(len(failures)))
	p.status.WorkerFailures += p.status.Workers.Failed - known
	job := &mlv1.TrainingJob{Spec: p.job.Spec, Status: p.status}
	job.Status.WorkerFailures-- // those before the last one
	for _, how := range failures {
		if judged := judge(job, how); !judged.restart {
			return &judged
		}
	}
	return nil
}

// canGoOn says whether the workers that are left can train on.
func canGoOn(job *mlv1.TrainingJob, members []*corev1.Pod) bool {
	lost := podend.FailedOf(members)
	return job.Spec.NumWorkers-int32(len(lost)) >= job.Spec.Elastic.MinWorkers &&
		!slices.ContainsFunc(lost, func(pod *corev1.Pod) bool { return replicaOf(pod) == "0" })
}

// restartElastic starts the whole job again. What made it necessary is counted once, as a restart.
func (p *planner) restartElastic(found failure) {
	if !found.Lost && found.Reason != reasons.PeerLost && p.status.WorkerFailures > p.job.Status.WorkerFailures {
		p.status.WorkerFailures--
	}
	p.restart(found)
	p.status.Workers.Failed = 0 // what is counted there belongs to the attempt that is over
}

// mayBegin says whether a job that does not run yet goes on with fewer workers than it should have: those that are
// missing cannot come now, or let wait for them long.
func (p *planner) mayBegin(members []*corev1.Pod) bool {
	if p.status.Workers.Active < p.job.Spec.Elastic.MinWorkers {
		return false
	}
	if first := masterPod(members); first == nil || first.Status.Phase != corev1.PodRunning || !isReady(first) {
		return false
	}
	left := p.workers.CreationTimestamp.Add(elasticPatience).Sub(p.now)
	if left <= 0 {
		return true
	}
	p.lookAgain(left)
	stuck := only(members, func(pod *corev1.Pod) bool {
		reason, _ := describeObstacle(pod)
		return reason != "" && settlingTime(p.now, pod) <= 0
	})
	return p.status.Workers.Active+int32(len(stuck)) >= p.status.Workers.Total
}

// describeIncomplete says why not all workers of a training that goes on take part.
func (p *planner) describeIncomplete(members []*corev1.Pod, found *failure) (reason, message string) {
	count := fmt.Sprintf("%d of %d workers run", p.status.Workers.Active, p.status.Workers.Total)
	if least := p.job.Spec.Elastic.MinWorkers; p.status.Workers.Active < least {
		count += fmt.Sprintf(", and the training waits until %d do", least)
	} else if found != nil {
		count = fmt.Sprintf("goes on with %d of %d workers", p.status.Workers.Active, p.status.Workers.Total)
	}
	message = count
	if found != nil {
		message += ": " + found.Message
	} else if _, why := p.describeMissing(members); why != "" {
		message += ": " + why
	}
	switch {
	case found != nil:
		return reasons.WorkerLost, message
	case p.job.Status.Workers != nil && p.job.Status.Workers.Total != p.job.Spec.NumWorkers,
		hasLeavers(p.workerPods(), p.job.Spec.NumWorkers):
		return reasons.Rescaling, message
	case p.status.State == mlv1.StateRunning && p.status.Reason == reasons.WorkersRunning && len(members) < int(p.status.Workers.Total):
		return reasons.WorkerLost, message // its pod is gone without a trace
	case p.status.State == mlv1.StateRunning:
		return p.status.Reason, message
	}
	return reasons.WorkersStarting, message
}
