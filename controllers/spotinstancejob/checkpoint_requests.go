package spotinstancejob

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// freshEnough is how old a checkpoint may be so that none of another replica is taken for one that is lost.
const freshEnough = time.Minute

// checkpoint asks for the next checkpoint of a replica when it is due.
func (p *planner) checkpoint(r *replica) {
	pod := r.running()
	if !p.takesCheckpoints() || pod == nil || isJobEnded(r.current) {
		return
	}
	since := pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		since = pod.Status.StartTime.Time
	}
	if r.status != nil && r.status.LastCheckpointTime != nil && r.status.LastCheckpointTime.After(since) {
		since = r.status.LastCheckpointTime.Time
	}
	for i, backup := range r.backups {
		if p.isInProgress(backup) {
			for _, after := range []time.Duration{silentAfter, patience(backup)} {
				if wait := backup.Created.Add(after).Sub(p.now); wait > 0 {
					p.lookAgain(wait)
				}
			}
			return
		}
		if i == 0 && backup.Created.After(since) {
			since = backup.Created
		}
	}
	if wait := since.Add(p.job.Spec.CheckpointConfig.CheckpointInterval.Duration).Sub(p.now); wait > 0 {
		p.lookAgain(wait)
		return
	}
	p.ask(r, pod, "")
}

// save asks for a checkpoint that a preempted replica can start from: of the replica itself while it runs, else of
// another, once for each attempt that is lost.
func (p *planner) save(r *replica, result outcome) {
	if !p.takesCheckpoints() {
		return
	}
	own, others := p.saves(r)
	// One that was asked for long ago was for a notice that was withdrawn, or for an earlier Job of this name.
	recent := func(backup checkpointbackup.Backup) bool { return p.now.Sub(backup.Created) < 2*saveStuckAfter }
	if result.kind == noticed && !slices.ContainsFunc(own, recent) {
		if pod := r.running(); pod != nil {
			p.ask(r, pod, r.current.Name)
			return
		}
	}
	for _, backup := range own {
		if p.isInProgress(backup) || p.images(backup) != nil {
			return
		}
	}
	if len(others) > 0 || p.hasFresh() {
		return
	}
	for i, other := range p.replicas {
		if other == r || p.outcomes[i].kind != active || other.retiredFor() != "" {
			continue
		}
		if pod := other.running(); pod != nil {
			p.ask(other, pod, r.current.Name)
			return
		}
	}
}

// saves are the checkpoints that were asked for because the current attempt of a replica is lost: those of its own, and
// those of others.
func (p *planner) saves(r *replica) (own, others []checkpointbackup.Backup) {
	for _, backup := range p.backups {
		if r.current == nil || backup.Labels[labelSaves] != r.current.Name {
			continue
		}
		if index, _ := indexOf(backup.Labels); index == r.index {
			own = append(own, backup)
		} else {
			others = append(others, backup)
		}
	}
	return own, others
}

// hasFresh says whether a checkpoint of any replica is hardly older than one that would be asked for now.
func (p *planner) hasFresh() bool {
	return slices.ContainsFunc(p.backups, func(backup checkpointbackup.Backup) bool {
		return p.now.Sub(backup.Created) < freshEnough && (p.images(backup) != nil || p.isInProgress(backup))
	})
}

// ownSaveInProgress is the last checkpoint of a replica that is about to be lost, while it is being taken; nil when it is not.
func (p *planner) ownSaveInProgress(r *replica) *checkpointbackup.Backup {
	own, _ := p.saves(r)
	return reconciling.Find(own, func(backup *checkpointbackup.Backup) bool { return p.isInProgress(*backup) })
}

// waitsForSave says whether a replica that is to be started again waits for a checkpoint that was asked for, or for one
// that was begun shortly before.
func (p *planner) waitsForSave(r *replica) bool {
	waits := false
	for _, backup := range p.backups {
		saves := r.current != nil && backup.Labels[labelSaves] == r.current.Name
		index, _ := indexOf(backup.Labels)
		begun := index == r.index && backup.Status.Phase != ""
		limit := backup.Created.Add(saveStuckAfter).Sub(p.now)
		if (saves || begun) && limit > 0 && p.isInProgress(backup) {
			p.lookAgain(limit)
			waits = true
		}
	}
	return waits
}

func (p *planner) ask(r *replica, pod *corev1.Pod, saves string) {
	at, name := p.now, ""
	isNamed := func(backup checkpointbackup.Backup) bool { return backup.Key.Name == name }
	for name == "" || slices.ContainsFunc(r.backups, isNamed) {
		name = checkpointName(p.job.Name, r.index, checkpointNumber(p.job.UID, at))
		at = at.Add(time.Second)
	}
	config, namespace := p.job.Spec.CheckpointConfig, p.job.Namespace
	registry, repository, _ := strings.Cut(config.CheckpointImageRepo, "/")
	backup := checkpointbackup.Backup{
		Key: types.NamespacedName{Namespace: namespace, Name: name}, Created: p.now,
		Labels: map[string]string{
			spotv1alpha1.LabelSpotInstanceJob: p.job.Name, spotv1alpha1.LabelReplica: r.current.Labels[spotv1alpha1.LabelReplica],
			labelJobUID: string(p.job.UID), labelTrained: strconv.FormatInt(trained(r.current, pod, p.now), 10),
		},
		Spec: checkpointbackup.Spec{
			Schedule: checkpointbackup.Immediately,
			Pod:      types.NamespacedName{Namespace: namespace, Name: pod.Name},
			Resource: checkpointbackup.Resource{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace, Name: r.current.Name},
			Registry: checkpointbackup.Registry{URL: registry, Repository: repository},
		},
	}
	if saves != "" {
		backup.Labels[labelSaves] = saves
	}
	if ref := config.CheckpointRepoCredentialRef; ref != nil {
		backup.Spec.Registry.Secret = types.NamespacedName{Namespace: namespace, Name: ref.Name}
	}
	names := p.containers()
	for i, container := range names {
		backup.Spec.Containers = append(backup.Spec.Containers, checkpointbackup.Container{
			Name: container, Image: imageFor(config.CheckpointImageRepo, name, names, i),
		})
	}
	p.desired.checkpoints = append(p.desired.checkpoints, backup)
	p.lookAgain(silentAfter)
}

// trained is for how many seconds the processes of a pod have trained, with the attempts from which they go on.
func trained(job *batchv1.Job, pod *corev1.Pod, now time.Time) int64 {
	before := int64(numberIn(job.Annotations[labelTrained]))
	for i := range pod.Status.ContainerStatuses {
		if runs := pod.Status.ContainerStatuses[i].State.Running; runs != nil {
			return before + max(0, int64(now.Sub(runs.StartedAt.Time).Seconds()))
		}
	}
	return before
}

// requestAge is how long a CheckpointBackup that was created counts although the cache does not show it.
const requestAge = 30 * time.Second

// requestedCheckpoints remembers the CheckpointBackups that were created a moment ago, which the cache may not show yet: none is
// requested twice.
type requestedCheckpoints struct {
	mutex sync.Mutex
	byJob map[types.NamespacedName][]checkpointbackup.Backup
}

func (c *requestedCheckpoints) add(job types.NamespacedName, backup checkpointbackup.Backup) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byJob == nil {
		c.byJob = map[types.NamespacedName][]checkpointbackup.Backup{}
	}
	c.byJob[job] = append(c.byJob[job], backup)
}

// merge adds to the list what it lacks, and forgets what it has or what is old.
func (c *requestedCheckpoints) merge(job types.NamespacedName, list []checkpointbackup.Backup, now time.Time) []checkpointbackup.Backup {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	waiting := slices.DeleteFunc(c.byJob[job], func(backup checkpointbackup.Backup) bool {
		return now.Sub(backup.Created) >= requestAge ||
			slices.ContainsFunc(list, func(known checkpointbackup.Backup) bool { return known.Key == backup.Key })
	})
	if len(waiting) == 0 {
		delete(c.byJob, job)
		return list
	}
	c.byJob[job] = waiting
	return append(slices.Clone(list), waiting...)
}

func (c *requestedCheckpoints) forget(job types.NamespacedName) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.byJob, job)
}
