package spotinstancejob

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// Annotations of a replica's Job. They carry what must outlive the Job from one attempt to the next.
const (
	annotationAttempt = "training.dcnlab.com/attempt"
	// annotationFailures is how often the replica failed by itself before this attempt.
	annotationFailures = "training.dcnlab.com/failures"
	// annotationStartedFrom is the CheckpointBackup from which the attempt starts.
	annotationStartedFrom = "training.dcnlab.com/started-from"
	// annotationUnusable are CheckpointBackups from which no attempt could be started, with commas between them.
	annotationUnusable = "training.dcnlab.com/unusable-checkpoints"
	// annotationRetired is on a Job that is being stopped for the next attempt: why.
	annotationRetired = "training.dcnlab.com/retired"
)

// Labels of CheckpointBackups, beside LabelSpotInstanceJob and LabelReplica.
const (
	// labelJobUID tells the checkpoints of this job from those of an earlier one of its name.
	labelJobUID = "training.dcnlab.com/spot-instance-job-uid"
	// labelSaves is on a checkpoint that is taken because a replica is about to be lost, or is lost: the name of the
	// Job in whose place another starts from it.
	labelSaves = "training.dcnlab.com/saves"
	// labelTrained is for how many seconds the state in the checkpoint has been trained, with the attempts before it. As an
	// annotation of a Job it is what the attempt starts with.
	labelTrained = "training.dcnlab.com/trained-seconds"
)

const kindSpotInstanceJob = "SpotInstanceJob"

// kueueQueue is on Jobs that Kueue suspends and resumes.
const kueueQueue = "kueue.x-k8s.io/queue-name"

// jobName is the name of the Job of an attempt. No two jobs' replicas can have the same, since only attempts end in
// r and a number.
func jobName(job string, index int, attempt int32) string {
	name := job + "-" + strconv.Itoa(index)
	if attempt > 0 {
		name += "-r" + strconv.Itoa(int(attempt))
	}
	return name
}

// numbers are those of the replica and the attempt.
var numbers = regexp.MustCompile(`^(\d{1,9})(?:-r(\d{1,9}))?$`)

func parseJobName(job, name string) (index int, attempt int32, ok bool) {
	rest, ours := strings.CutPrefix(name, job+"-")
	found := numbers.FindStringSubmatch(rest)
	if !ours || found == nil {
		return 0, 0, false
	}
	return int(numberIn(found[1])), numberIn(found[2]), true
}

// attemptOf is the number of earlier Jobs of the same replica.
func attemptOf(job *batchv1.Job) int32 { return numberIn(job.Annotations[annotationAttempt]) }

// failuresBefore is how often the replica failed before this Job.
func failuresBefore(job *batchv1.Job) int32 { return numberIn(job.Annotations[annotationFailures]) }

func numberIn(text string) int32 {
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(number)
}

func indexOf(labels map[string]string) (int, bool) {
	index, err := strconv.Atoi(labels[spotv1alpha1.LabelReplica])
	return index, err == nil && index >= 0
}

// checkpointNumber numbers the checkpoints of a replica in the order of their requests. It never repeats, not even in
// a later job of the same name or in a job of that name elsewhere that pushes to the same repository: nodes may still have
// an image that was once pushed under a tag. So it is the time, with digits of the job's identity behind.
func checkpointNumber(uid types.UID, at time.Time) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	return fmt.Sprintf("%d%05d", at.Unix(), hash.Sum32()%100000)
}

func checkpointName(job string, index int, number string) string {
	return fmt.Sprintf("%s-%d-%s", job, index, number)
}

// longestTag is what registries take.
const longestTag = 128

// imageFor is the image of a container's checkpoint. A pod of one container needs no more than the checkpoint's name.
func imageFor(repo, checkpoint string, containers []string, i int) string {
	if len(containers) == 1 {
		return repo + ":" + checkpoint
	}
	tag := checkpoint + "-" + containers[i]
	if len(tag) > longestTag {
		tag = checkpoint + "-" + strconv.Itoa(i)
	}
	return repo + ":" + tag
}
