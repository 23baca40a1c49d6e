package build

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
)

// WorkersName is the name of the Indexed Job of a job's workers.
func WorkersName(job *mlv1.TrainingJob) string { return job.Name + "-training" }

// HeadlessName is the name of the Service that gives each worker its host name.
func HeadlessName(job *mlv1.TrainingJob) string { return job.Name + "-headless" }

// MasterName is the name of the Service of the worker with rank 0.
func MasterName(job *mlv1.TrainingJob) string { return job.Name + "-master" }

// ConfigName is the name of the ConfigMap with a job's configuration.
func ConfigName(job *mlv1.TrainingJob) string { return job.Name + "-config" }

// ServiceAccountName is the ServiceAccount of the workers: the spec's, or the one that the operator makes.
func ServiceAccountName(job *mlv1.TrainingJob) string {
	return cmp.Or(job.Spec.ServiceAccountName, job.Name+"-training")
}

// ClaimName is the claim that holds the job's checkpoints: the spec's, or the one that the operator makes.
func ClaimName(job *mlv1.TrainingJob) string {
	return cmp.Or(ptr.Deref(job.Spec.Checkpoint, mlv1.Checkpoint{}).Storage.ClaimName, job.Name+"-checkpoints")
}

// masterAddress is the DNS name of replica 0, which the Job controller makes its pod's host name and the headless
// Service publishes. It is resolved through the search path of the pods, so that the cluster's domain need not be known.
func masterAddress(job *mlv1.TrainingJob) string {
	return WorkersName(job) + "-0." + HeadlessName(job)
}

// CheckpointsEnabled says whether the job saves checkpoints.
func CheckpointsEnabled(job *mlv1.TrainingJob) bool {
	return job.Spec.Checkpoint != nil && ptr.Deref(job.Spec.Checkpoint.Enabled, true)
}

// UsesClaim says whether the job's checkpoints lie on a claim.
func UsesClaim(job *mlv1.TrainingJob) bool {
	return CheckpointsEnabled(job) && StorageType(job) == mlv1.StoragePVC
}

// CreatesClaim says whether the operator makes the claim.
func CreatesClaim(job *mlv1.TrainingJob) bool {
	return UsesClaim(job) && job.Spec.Checkpoint.Storage.ClaimName == ""
}

// StorageType is the type of storage that a job keeps its checkpoints in.
func StorageType(job *mlv1.TrainingJob) mlv1.StorageType {
	return cmp.Or(job.Spec.Checkpoint.Storage.Type, mlv1.StoragePVC)
}

// NamedClaims are the claims that the spec names and that must exist before the job can start.
func NamedClaims(job *mlv1.TrainingJob) []string {
	var names []string
	if UsesClaim(job) && !CreatesClaim(job) {
		names = append(names, ClaimName(job))
	}
	if claim, _, ok := ResumeClaim(job); ok && claim != ClaimName(job) {
		names = append(names, claim)
	}
	for _, claim := range podbuild.Claims(&job.Spec.Settings) {
		if claim != ClaimName(job) && !slices.Contains(names, claim) {
			names = append(names, claim)
		}
	}
	return names
}

// ClaimField is the field that names a claim.
func ClaimField(job *mlv1.TrainingJob, name string) string {
	if slices.Contains(podbuild.Claims(&job.Spec.Settings), name) {
		return "spec.volumes"
	}
	return "spec.checkpoint"
}

// ResumeClaim returns the claim and the path in it when resumeFrom is a pvc:// URI.
func ResumeClaim(job *mlv1.TrainingJob) (claim, path string, ok bool) {
	rest, ok := strings.CutPrefix(ResumeFrom(job), "pvc://")
	claim, path, _ = strings.Cut(rest, "/")
	if !ok {
		return "", "", false
	}
	return claim, path, true
}

// KueueQueueLabel is the label by which Kueue manages a job.
const KueueQueueLabel = "kueue.x-k8s.io/queue-name"

// QueueName is the AIJobQueue that admits the job; empty when none does.
func QueueName(job *mlv1.TrainingJob) string {
	return ptr.Deref(job.Spec.Scheduling, mlv1.Scheduling{}).QueueName
}

// LocalQueue is the LocalQueue of Kueue that the job waits in; empty when it waits in none.
func LocalQueue(job *mlv1.TrainingJob) string { return job.Labels[KueueQueueLabel] }

// SpotName is the SpotInstanceVM that the job names; empty when it names none.
func SpotName(job *mlv1.TrainingJob) string {
	if s := job.Spec.Scheduling; s != nil && s.Spot != nil {
		return s.Spot.Name
	}
	return ""
}

// ResumeFrom is where a job begins that has no checkpoint of its own: spec.checkpoint.resumeFrom, or in a restored job where the checkpoints
// lie of the one that was backed up; empty for the first epoch.
func ResumeFrom(job *mlv1.TrainingJob) string {
	return cmp.Or(formerCheckpoints(job), ptr.Deref(job.Spec.Checkpoint, mlv1.Checkpoint{}).ResumeFrom)
}

// Kind owns the children.
const Kind = "TrainingJob"
