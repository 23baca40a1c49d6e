package spotinstancejob

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

const (
	// silentAfter is how long an agent may take to begin with a checkpoint.
	silentAfter = time.Minute
	// stuckAfter is how long a checkpoint may take; after it, it counts as failed unless it completes later.
	stuckAfter = 10 * time.Minute
	// saveStuckAfter is the same for one that a lost replica waits for.
	saveStuckAfter = 2 * time.Minute
)

// newestFirst orders checkpoints by when they were asked for, because that is the state that they hold.
func newestFirst(a, b checkpointbackup.Backup) int {
	return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.Key.Name, a.Key.Name))
}

// furthestFirst orders checkpoints by how far the training was. The replicas do not all start at the same time: the newest
// checkpoint may be of one that has hardly begun.
func furthestFirst(a, b checkpointbackup.Backup) int {
	return cmp.Or(cmp.Compare(numberIn(b.Labels[labelTrained]), numberIn(a.Labels[labelTrained])), newestFirst(a, b))
}

// patience is how long a checkpoint may take.
func patience(backup checkpointbackup.Backup) time.Duration {
	if backup.Labels[labelSaves] != "" {
		return saveStuckAfter
	}
	return stuckAfter
}

// isInProgress says whether a checkpoint may still come to a good end.
func (o observed) isInProgress(backup checkpointbackup.Backup) bool {
	if backup.Status.Phase.Ended() || backup.Deleted || o.now.Sub(backup.Created) >= patience(backup) {
		return false
	}
	pod := o.pod(backup.Spec.Pod.Name)
	if pod == nil || podend.IsEnded(pod) {
		return backup.Status.Phase != "" // no agent begins with a pod that is gone
	}
	return !o.nodes[pod.Spec.NodeName].isLost(o.now)
}

func (o observed) pod(name string) *corev1.Pod {
	for _, pod := range o.pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}

// isSilent says whether nothing has taken up a checkpoint of a pod that runs.
func (o observed) isSilent(backup checkpointbackup.Backup) bool {
	if backup.Status.Phase != "" || o.now.Sub(backup.Created) < silentAfter {
		return false
	}
	pod := o.pod(backup.Spec.Pod.Name)
	return pod != nil && !podend.IsEnded(pod) && !o.nodes[pod.Spec.NodeName].isLost(o.now)
}

func (o observed) containers() []string {
	var names []string
	for i := range o.job.Spec.JobTemplate.Spec.Template.Spec.Containers {
		names = append(names, o.job.Spec.JobTemplate.Spec.Template.Spec.Containers[i].Name)
	}
	return names
}

// images are those of a checkpoint by container; nil unless it has one of every container.
func (o observed) images(backup checkpointbackup.Backup) map[string]string {
	found := map[string]string{}
	switch backup.Status.Phase {
	case checkpointbackup.Completed, checkpointbackup.CompletedPodDeleted:
		for _, c := range backup.Spec.Containers { // what was asked for, where the agent does not name it
			found[c.Name] = c.Image
		}
	case checkpointbackup.CompletedWithError:
	default:
		return nil
	}
	for _, c := range backup.Status.Images {
		if c.Image != "" {
			found[c.Name] = c.Image
		}
	}
	for _, name := range o.containers() {
		if found[name] == "" {
			return nil
		}
	}
	return found
}

// newestComplete is the newest of the checkpoints that has all images; nil for none. They are ordered, the newest first.
func (o observed) newestComplete(backups []checkpointbackup.Backup, except []string) *checkpointbackup.Backup {
	return reconciling.Find(backups, func(backup *checkpointbackup.Backup) bool {
		return o.images(*backup) != nil && !slices.Contains(except, backup.Key.Name)
	})
}

// origin is from what an attempt starts.
type origin struct {
	// name of the checkpoint; empty when it starts from the images of the template.
	name   string
	images map[string]string
	// trained is for how many seconds the state was trained.
	trained int32
}

// newest is the checkpoint of any replica that can be used and was trained longest, the newest of several. Where the CheckpointBackups are gone, the image in the
// status counts; of a pod of several containers it is not enough.
func (o observed) newest(unusable []string) origin {
	if o.job.Spec.CheckpointConfig == nil || !o.job.HasOnePod() {
		return origin{}
	}
	all := slices.SortedFunc(slices.Values(o.backups), furthestFirst)
	if found := o.newestComplete(all, unusable); found != nil {
		return origin{name: found.Key.Name, images: o.images(*found), trained: numberIn(found.Labels[labelTrained])}
	}
	image, names := o.job.Status.LastCheckpointImage, o.containers()
	name := image[strings.LastIndex(image, ":")+1:]
	if image == "" || len(names) != 1 || slices.Contains(unusable, name) {
		return origin{}
	}
	return origin{name: name, images: map[string]string{names[0]: image}}
}

// completionOf is when a good checkpoint was complete. An agent that does not say so leaves the time of the request.
func completionOf(backup *checkpointbackup.Backup) time.Time {
	if backup.Status.Completed.IsZero() {
		return backup.Created
	}
	return backup.Status.Completed
}

// prunable are the checkpoints that are no longer kept: good ones beyond retention, failed ones that a good one has
// followed or that are too many, and requests that no agent took up in time. Those from which a replica is being started
// stay.
func (o observed) prunable(r *replica) []checkpointbackup.Backup {
	retention := int32(3)
	if c := o.job.Spec.CheckpointConfig; c != nil && c.Retention > 0 {
		retention = c.Retention
	}
	var list []checkpointbackup.Backup
	goods, bads := int32(0), int32(0)
	for _, backup := range r.backups {
		switch {
		case backup.Deleted, o.isInProgress(backup), o.startsFrom(backup.Key.Name):
			continue
		case o.images(backup) != nil:
			if goods++; goods <= retention {
				continue
			}
		case backup.Status.Phase == "":
		default:
			if bads++; goods == 0 && bads <= retention {
				continue
			}
		}
		list = append(list, backup)
	}
	return list
}

// startsFrom says whether a replica that does not run yet starts from the checkpoint.
func (o observed) startsFrom(name string) bool {
	return slices.ContainsFunc(o.jobs, func(job *batchv1.Job) bool {
		return job.Annotations[annotationStartedFrom] == name && !isJobEnded(job) && !slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool {
			return pod.Labels[labelJobName] == job.Name && pod.Status.Phase == corev1.PodRunning
		})
	})
}

// labelJobName is the label that the Job controller puts onto pods.
const labelJobName = "batch.kubernetes.io/job-name"
