package spotinstancejob

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// desired is what a plan wants done, in the order in which it is done.
type desired struct {
	relabel     []*batchv1.Job
	checkpoints []checkpointbackup.Backup // to ask for
	suspend     []suspension
	outlived    []podend.Outlived // whose own containers have ended and others have not
	expel       []*corev1.Pod     // that surely run no more, and that only their nodes could report as ended
	orphans     []*corev1.Pod     // whose Job was deleted without them
	remove      []*batchv1.Job
	create      []*batchv1.Job
	prune       []checkpointbackup.Backup

	status spotv1alpha1.SpotInstanceJobStatus
	// again is when to look again though nothing happens; 0 for never.
	again time.Duration
}

// suspension is a change of a Job's spec.suspend. With a reason the Job is retired: another replaces it.
type suspension struct {
	job    *batchv1.Job
	to     bool
	retire string
}

// Reasons for which a Job is retired.
const (
	retiredPreempted   = "Preempted"
	retiredResumed     = "Resumed"
	retiredUnstartable = "CheckpointUnusable"
)

// replaceBefore is how long before a node goes its replica is replaced, though its checkpoint is not complete.
const replaceBefore = 5 * time.Second

// hiddenRetry is when to look again for Jobs that got their labels back.
const hiddenRetry = time.Second

type planner struct {
	observed

	replicas []*replica
	outcomes []outcome
	desired  desired
}

// plan says what to do for a job. It is a pure function.
func plan(o observed) desired {
	p := &planner{observed: o, replicas: o.replicas()}
	if p.desired.outlived = o.outlived(); len(p.desired.outlived) > 0 {
		p.lookAgain(podend.LookAgain)
	}
	if isEnded(&o.job.Status) {
		p.desired.status = *o.job.Status.DeepCopy()
		p.desired.status.ObservedGeneration = o.job.Generation
		p.cleanUp()
		return p.desired
	}
	if len(o.hidden) > 0 { // nothing is known until the cache shows them
		p.desired.relabel, p.desired.status, p.desired.again = o.hidden, *o.job.Status.DeepCopy(), hiddenRetry
		return p.desired
	}
	for _, r := range p.replicas {
		p.outcomes = append(p.outcomes, o.outcomeOf(r))
	}
	p.desired.status = p.nextStatus()
	if isEnded(&p.desired.status) {
		p.cleanUp()
		return p.desired
	}
	for i, r := range p.replicas {
		p.step(r, p.outcomes[i])
	}
	p.scaleDown()
	return p.desired
}

func (p *planner) lookAgain(after time.Duration) {
	p.desired.again = reconciling.Sooner(p.desired.again, after)
}

func (p *planner) step(r *replica, result outcome) {
	p.expelLost(r)
	for _, pod := range r.orphans {
		if pod.DeletionTimestamp == nil {
			p.desired.orphans = append(p.desired.orphans, pod)
		}
	}
	if r.current != nil {
		p.desired.remove = append(p.desired.remove, r.older...)
	}
	p.desired.prune = append(p.desired.prune, p.prunable(r)...)
	if r.retiredFor() != "" {
		if r.retiredFor() == retiredPreempted { // its own last checkpoint may have failed meanwhile
			p.save(r, outcome{kind: lost})
		}
		p.replace(r, result)
		return
	}
	switch result.kind {
	case active:
		p.syncSuspend(r)
		p.checkpoint(r)
		p.awaitStart(r)
	case noticed, lost:
		p.preempted(r, result)
	case unstartable:
		p.retire(r, retiredUnstartable)
	case vanished, failed:
		if r.current == nil && r.status != nil && r.status.Phase == spotv1alpha1.ReplicaFailed {
			return // it had failed, and its Job is gone
		}
		p.replace(r, result)
	case hopeless, succeeded:
	}
}

// preempted deals with a replica that is being lost or is lost. First its checkpoint is asked for and the status counts
// it; only then it is replaced, so that it is counted once.
func (p *planner) preempted(r *replica, result outcome) {
	p.save(r, result)
	if !r.isCountedPreempted() {
		return
	}
	if own := p.ownSaveInProgress(r); result.kind == noticed && own != nil {
		wait := result.deadline.Add(-replaceBefore).Sub(p.now)
		if result.undated { // the checkpoint was asked for when it came
			wait -= p.now.Sub(own.Created)
		}
		if wait > 0 {
			p.lookAgain(wait)
			return
		}
	}
	if isJobEnded(r.current) {
		p.replace(r, result)
		return
	}
	p.retire(r, retiredPreempted)
}

// retire stops the current Job of a replica. What Kueue holds or lets go cannot be stopped by suspending it.
func (p *planner) retire(r *replica, why string) {
	if _, queued := r.current.Labels[kueueQueue]; queued {
		p.desired.remove = append(p.desired.remove, r.current)
		for _, backup := range p.backups { // that it is of no use is written on the Job only, which goes
			if why == retiredUnstartable && backup.Key.Name == r.current.Annotations[annotationStartedFrom] {
				p.desired.prune = append(p.desired.prune, backup)
			}
		}
		return
	}
	p.desired.suspend = append(p.desired.suspend, suspension{r.current, true, why})
}

// replace starts the next attempt of a replica, as soon as nothing of an earlier one can run.
func (p *planner) replace(r *replica, result outcome) {
	switch {
	case r.current != nil && !isStopped(r.current), len(r.live()) > 0, len(r.strays) > 0:
		return // the end of a Job or pod is told by the watch
	case p.secretProblem != "":
		p.lookAgain(secretRetry)
		return
	case p.waitsForSave(r), p.waitsForBackoff(r, result):
		return
	}
	p.desired.create = append(p.desired.create, p.buildNext(r, result))
}

// secretRetry is when to look again for a Secret, which is not watched.
const secretRetry = 15 * time.Second

// backoff of the first failure, and the longest; it doubles with each.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 6 * time.Minute
)

// waitsForBackoff says whether a replica that failed by itself, or was refused by a node, has to wait.
func (p *planner) waitsForBackoff(r *replica, result outcome) bool {
	if r.current == nil || result.at.IsZero() || (result.kind != failed && result.kind != vanished) {
		return false
	}
	delay := reconciling.Doubled(backoffFirst, backoffMax, int(failuresBefore(r.current)))
	wait := result.at.Add(delay).Sub(p.now)
	if wait > 0 {
		p.lookAgain(wait)
	}
	return wait > 0
}

// expelLost deletes pods whose node is lost: nothing else ends them there, and as long as they are, no other may start.
// Not before their Job is stopped, or it would make another at once, which starts from an old state.
func (p *planner) expelLost(r *replica) {
	pods := r.strays
	if r.current != nil && (r.retiredFor() != "" || isJobEnded(r.current) || !p.job.HasOnePod()) {
		pods = append(r.live(), pods...)
	}
	for _, pod := range pods {
		expelled := pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
		if !expelled && p.nodes[pod.Spec.NodeName].isLost(p.now) {
			p.desired.expel = append(p.desired.expel, pod)
		}
	}
	for _, pod := range r.live() {
		if n := p.nodes[pod.Spec.NodeName]; n != nil && n.notice != nil && !n.isLost(p.now) {
			if wait := n.notice.Deadline.Add(lostAfter + time.Second).Sub(p.now); wait > 0 {
				p.lookAgain(wait)
			}
		}
	}
}

// syncSuspend stops and resumes a replica as the template says. One that was stopped goes on from the newest checkpoint,
// if there is one that it did not start from.
func (p *planner) syncSuspend(r *replica) {
	if _, queued := r.current.Labels[kueueQueue]; queued {
		if p.queuedAgain(r) {
			p.retire(r, retiredResumed)
		}
		return
	}
	if isJobEnded(r.current) {
		return
	}
	want, is := ptr.Deref(p.job.Spec.JobTemplate.Spec.Suspend, false), ptr.Deref(r.current.Spec.Suspend, false)
	switch {
	case want == is:
	case want:
		p.desired.suspend = append(p.desired.suspend, suspension{job: r.current, to: true})
	case p.hasBetterStart(r):
		p.retire(r, retiredResumed)
	default:
		p.desired.suspend = append(p.desired.suspend, suspension{job: r.current})
	}
}

// queuedAgain says whether Kueue has taken a replica's place back after a checkpoint of it was taken. Its Job would start
// from where it once did when it is admitted again, so another waits in its stead.
func (p *planner) queuedAgain(r *replica) bool {
	if isJobEnded(r.current) || !isStopped(r.current) || len(r.live()) > 0 || p.waitsForSave(r) || !p.hasBetterStart(r) {
		return false
	}
	bad := unusable(r.current)
	return slices.ContainsFunc(r.backups, func(b checkpointbackup.Backup) bool {
		return p.images(b) != nil && !slices.Contains(bad, b.Key.Name) && b.Created.After(r.current.CreationTimestamp.Time)
	})
}

func (p *planner) hasBetterStart(r *replica) bool {
	from := p.newest(unusable(r.current))
	return from.name != "" && from.name != r.current.Annotations[annotationStartedFrom]
}

// awaitStart comes back when a start from a checkpoint takes too long.
func (p *planner) awaitStart(r *replica) {
	if r.current.Annotations[annotationStartedFrom] == "" {
		return
	}
	for _, pod := range r.live() {
		if since := scheduledAt(pod); !since.IsZero() && waitsForStart(pod) {
			p.lookAgain(since.Add(startPatience).Sub(p.now))
		}
	}
}

func (p *planner) scaleDown() {
	for _, job := range p.jobs {
		if index, ok := indexOf(job.Labels); ok && index >= len(p.replicas) && job.DeletionTimestamp == nil {
			p.desired.remove = append(p.desired.remove, job)
		}
	}
}

// cleanUp stops what still runs of a job that has ended, and removes its Jobs when the template says after how long.
func (p *planner) cleanUp() {
	expired := false
	if ttl := p.job.Spec.JobTemplate.Spec.TTLSecondsAfterFinished; ttl != nil {
		wait := p.desired.status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(p.now)
		// Not before the end is written: it is known from its Job only.
		if expired = wait <= 0 && isEnded(&p.job.Status); !expired && len(p.jobs) > 0 {
			p.lookAgain(wait)
		}
	}
	for _, job := range p.jobs {
		if job.DeletionTimestamp == nil && (expired || !isJobEnded(job)) {
			p.desired.remove = append(p.desired.remove, job)
		}
	}
	p.desired.remove = slices.Compact(p.desired.remove)
}
