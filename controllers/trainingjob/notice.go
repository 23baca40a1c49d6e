package trainingjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// stopMargin is kept of the time that a notice leaves, or a third of it when that is less: for the workers to stop, with
	// a last checkpoint if the one that was asked for never came.
	stopMargin = 10 * time.Second
	// maxNoticed bounds status.preemption.nodes.
	maxNoticed = 100
)

// decideNotice decides about workers on nodes that go. At the first notice a checkpoint is asked for, at once and whatever else the
// job is at; once it is in the storage, cannot be had, or there is no more time for it, the workers that must leave are
// returned, with the words on what they go on from. What was decided is in the status, so that no notice is acted upon twice,
// and notices that come meanwhile are part of the same decision.
func (p *planner) decideNotice(pods []*corev1.Pod) (leaving []*corev1.Pod, from string) {
	next := cmp.Or(p.status.Preemption.DeepCopy(), &mlv1.PreemptionStatus{})
	defer func() {
		if p.status.Preemption != nil || next.State != "" {
			p.status.Preemption = next
		}
	}()
	next.Nodes = slices.DeleteFunc(next.Nodes, func(n mlv1.NoticedNode) bool { return n.Left && p.isWithdrawn(n.Name) })
	if !build.CheckpointsEnabled(p.job) && build.SpotName(p.job) == "" {
		return nil, "" // it gains nothing by leaving before the nodes are gone, and a notice may be withdrawn
	}
	leaving = p.noticedWorkers(next, pods)
	if len(leaving) == 0 {
		p.concludeNotice(next)
		return nil, ""
	}
	if next.State != mlv1.PreemptionCheckpointing {
		*next = mlv1.PreemptionStatus{State: mlv1.PreemptionCheckpointing, Count: next.Count + 1, Nodes: next.Nodes}
		next.RequestID = fmt.Sprintf("preemption-%d", next.Count)
	}
	p.enterNotices(next, leaving)
	deadline, margin := timeLeft(next)
	left := deadline.Add(-margin).Sub(p.now)
	over, path, words := p.noticeAnswer(next.RequestID)
	if !over && left > 0 {
		p.urgent = next.RequestID
		p.lookAgain(left)
		next.Message = "a checkpoint is taken before a worker leaves its node"
		if len(leaving) > 1 {
			next.Message = fmt.Sprintf("a checkpoint is taken before %d workers leave their nodes", len(leaving))
		}
		return nil, ""
	}
	if !over {
		words = "the checkpoint that was asked for is not in the storage yet, and there is no more time to wait for it"
	}
	if path == "" {
		words += "; " + newestCheckpoint(&p.status)
	}
	next.CheckpointPath = path
	leaveAll(next, clip(words, maxMessage))
	return leaving, words
}

// noticedWorkers are the workers that run on nodes with a notice which was not acted upon yet.
func (o *observed) noticedWorkers(known *mlv1.PreemptionStatus, pods []*corev1.Pod) []*corev1.Pod {
	list := only(pods, func(pod *corev1.Pod) bool {
		_, noticed := o.notices[pod.Spec.NodeName]
		return noticed && !isEnding(pod) && pod.Status.Phase != corev1.PodSucceeded &&
			!slices.ContainsFunc(known.Nodes, func(n mlv1.NoticedNode) bool { return n.Name == pod.Spec.NodeName && n.Left })
	})
	slices.SortFunc(list, func(a, b *corev1.Pod) int { // in the cache they have no order
		one, _ := indexOf(a)
		other, _ := indexOf(b)
		return cmp.Compare(one, other)
	})
	return list
}

// concludeNotice ends what was begun for workers that are no longer on nodes that go: they were lost before, or the notice
// was taken back.
func (o *observed) concludeNotice(next *mlv1.PreemptionStatus) {
	if next.State != mlv1.PreemptionCheckpointing {
		return
	}
	still := func(n mlv1.NoticedNode) bool { return !n.Left && !o.isWithdrawn(n.Name) }
	if slices.ContainsFunc(next.Nodes, still) {
		leaveAll(next, "the workers were gone before a checkpoint was taken")
		return
	}
	next.State, next.Message = mlv1.PreemptionWithdrawn, "the notice was taken back, and the workers stay"
	next.Nodes = slices.DeleteFunc(next.Nodes, func(n mlv1.NoticedNode) bool { return !n.Left })
}

// leaveAll notes that all nodes with a notice are left.
func leaveAll(next *mlv1.PreemptionStatus, message string) {
	next.State, next.Message = mlv1.PreemptionLeft, message
	for i := range next.Nodes {
		next.Nodes[i].Left = true
	}
}

// enterNotices writes down the nodes of the workers that must leave. The time and the deadline of the first look stay,
// because many sources have none, unless another source has an earlier one.
func (o *observed) enterNotices(next *mlv1.PreemptionStatus, leaving []*corev1.Pod) {
	next.Nodes = slices.DeleteFunc(next.Nodes, func(n mlv1.NoticedNode) bool { return !n.Left && o.isWithdrawn(n.Name) })
	for _, pod := range leaving {
		notice := o.notices[pod.Spec.NodeName]
		entry := mlv1.NoticedNode{
			Name: pod.Spec.NodeName, Source: clip(string(notice.Source), 64),
			Time: ptr.To(metav1.NewMicroTime(notice.Time)), Deadline: ptr.To(metav1.NewMicroTime(deadlineOfNotice(notice, o.now))),
		}
		at := slices.IndexFunc(next.Nodes, func(n mlv1.NoticedNode) bool { return n.Name == entry.Name })
		switch {
		case at < 0:
			for len(next.Nodes) >= maxNoticed {
				next.Nodes = next.Nodes[1:]
			}
			next.Nodes = append(next.Nodes, entry)
		case next.Nodes[at].Source != entry.Source && (next.Nodes[at].Deadline == nil || entry.Deadline.Before(next.Nodes[at].Deadline)):
			next.Nodes[at] = entry
		}
	}
}

// deadlineOfNotice is when the node is expected to be gone. A worker whose node should be gone already, and is not, gets time
// to save what it has all the same.
func deadlineOfNotice(notice nodenotice.Notice, now time.Time) time.Time {
	deadline := notice.Deadline
	if deadline.IsZero() {
		deadline = notice.Time.Add(nodenotice.Grace)
	}
	if least := now.Add(nodenotice.Grace / 2); deadline.Before(least) {
		return least
	}
	return deadline
}

// timeLeft is when the first of the nodes that have to be left is expected to be gone, and how much before that the workers
// must be told.
func timeLeft(next *mlv1.PreemptionStatus) (deadline time.Time, margin time.Duration) {
	for _, node := range next.Nodes {
		if node.Left || node.Deadline == nil || !deadline.IsZero() && !node.Deadline.Time.Before(deadline) {
			continue
		}
		deadline, margin = node.Deadline.Time, stopMargin
		if node.Time != nil {
			margin = max(min(stopMargin, deadline.Sub(node.Time.Time)/3), 0)
		}
	}
	return deadline, margin
}

// noticeAnswer says whether the checkpoint that was asked for is there, with its path, or will not come, and why.
func (p *planner) noticeAnswer(id string) (over bool, path, words string) {
	switch {
	case !build.CheckpointsEnabled(p.job):
		return true, "", "this job keeps no checkpoints"
	case p.status.State != mlv1.StateRunning:
		return true, "", "the training did not run yet"
	}
	if v := p.viewAgent(); v.sync != nil && v.sync.Request != nil && v.sync.Request.ID == id {
		said := v.sync.Request
		switch said.State {
		case report.RequestDone:
			path = placeOf(p.job, said.Path)
			return true, path, "goes on from the checkpoint " + path + ", which was taken for it, or a newer one that the workers save when they stop"
		case report.RequestFailed:
			return true, "", "no checkpoint could be taken: " + quoted(p.job, said.Message)
		}
	}
	if p.agent == "" {
		return true, "", "no checkpoint could be asked for, since the checkpoint agent of worker 0 does not run"
	}
	return false, "", ""
}

// newestCheckpoint says in words what the training goes on from.
func newestCheckpoint(status *mlv1.TrainingJobStatus) string {
	if !build.HasCheckpoint(status) {
		return "goes on from what the workers save when they stop, or else from the beginning: there is no checkpoint yet"
	}
	return "goes on from what the workers save when they stop, or else from the newest checkpoint " + status.Checkpoint.Path
}

// noticeFailure is the loss of workers that have to leave their nodes.
func (o *observed) noticeFailure(leaving []*corev1.Pod, from string) failure {
	first := leaving[0]
	notice := o.notices[first.Spec.NodeName]
	detail := fmt.Sprintf("%s at %s", notice.Source, notice.Time.UTC().Format(time.RFC3339))
	if len(leaving) > 1 {
		var others []string
		for _, pod := range leaving[1:] {
			others = append(others, replicaOf(pod))
		}
		detail += "; so have workers " + strings.Join(others, ", ")
	}
	found := failureOf(first).lostTo(reasons.NodePreempted, clip(detail, maxMessage/2))
	found.Message += "; " + from
	return *found
}

// leaveTogether starts a job again elsewhere whose workers can only go on together. It returns false when there is nothing
// to leave now.
func (p *planner) leaveTogether(pods []*corev1.Pod) bool {
	leaving, from := p.decideNotice(pods)
	if len(leaving) == 0 {
		return false
	}
	found := p.noticeFailure(leaving, from)
	p.recordFailure(found)
	p.restart(found)
	return true
}

// leaveOneByOne has those workers of an elastic job leave whose nodes go, while the others train on. It returns true when
// these cannot, and the whole job is started again.
func (p *planner) leaveOneByOne(members []*corev1.Pod) bool {
	leaving, from := p.decideNotice(members)
	if len(leaving) == 0 {
		return false
	}
	after := slices.Clone(members)
	for i, pod := range after {
		if slices.Contains(leaving, pod) {
			gone := *pod
			gone.DeletionTimestamp = ptr.To(metav1.NewTime(p.now))
			after[i] = &gone
		}
	}
	if !canGoOn(p.job, after) {
		found := p.noticeFailure(leaving, from)
		p.recordFailure(found)
		p.restartElastic(found)
		return true
	}
	for _, pod := range leaving {
		p.expelled[pod] = p.graceLeft(pod)
	}
	return false
}

// shortenGrace has the pods of an attempt that ends leave nodes that go before these are gone: a pod whose node has died under it
// would hold up the next attempt for the rest of its grace period.
func (p *planner) shortenGrace() {
	for _, pod := range p.workerPods() {
		if podend.IsEnded(pod) {
			continue
		}
		grace := p.graceLeft(pod)
		due := p.now.Add(time.Duration(grace) * time.Second)
		if grace < build.GracePeriod(p.job) && (pod.DeletionTimestamp == nil || due.Add(time.Second).Before(pod.DeletionTimestamp.Time)) {
			p.expelled[pod] = grace
		}
	}
}

// graceLeft is the grace period in seconds within which a pod can end on its node: its own, or what is left of the node's
// time when that is less. Two seconds are kept for the kubelet to report the pod's end.
func (p *planner) graceLeft(pod *corev1.Pod) int64 {
	whole := build.GracePeriod(p.job)
	if p.status.Preemption == nil || p.isWithdrawn(pod.Spec.NodeName) {
		return whole
	}
	for _, node := range p.status.Preemption.Nodes {
		if node.Name == pod.Spec.NodeName && node.Deadline != nil {
			left := int64(node.Deadline.Time.Sub(p.now).Seconds()) - 2
			return min(whole, max(left, 1))
		}
	}
	return whole
}

// blameNotice is a failure in the light of the notices: workers that end while the node of one of them goes, ended because
// of that, unless they say that they cannot go on anywhere.
func (o *observed) blameNotice(found *failure) *failure {
	if found == nil {
		return nil
	}
	switch found.Reason {
	case reasons.ProgramKilled, reasons.PeerLost, reasons.ProgramFailed:
		if slices.Contains(o.job.Spec.FailurePolicy.NonRetryableExitCodes, found.ExitCode) {
			return found
		}
		for _, pod := range o.workerPods() {
			if notice, ok := o.notices[pod.Spec.NodeName]; ok {
				return failureOf(pod).lostTo(reasons.NodePreempted, string(notice.Source))
			}
		}
	case reasons.PodDeleted, reasons.NodeLost, reasons.NodeShutdown, reasons.NodeTainted, reasons.Disrupted, reasons.Evicted:
		if notice, ok := o.notices[found.node]; ok {
			return found.lostTo(reasons.NodePreempted, string(notice.Source))
		}
	}
	return found
}
