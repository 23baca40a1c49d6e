package build

import (
	"maps"
	"net/url"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// ResumeLatest as resumeFrom means the newest checkpoint of a job of the same name.
const ResumeLatest = "latest"

// nfsScheme begins the URI of a directory on an NFS server. Users write none; it stands for another job's storage.
const nfsScheme = "nfs"

// storeSchemes are the URI schemes of object stores.
var storeSchemes = map[mlv1.StorageType]string{mlv1.StorageS3: "s3", mlv1.StorageGCS: "gs", mlv1.StorageAzure: "azblob"}

// UsesStore says whether the job's checkpoints lie in an object store.
func UsesStore(job *mlv1.TrainingJob) bool {
	return CheckpointsEnabled(job) && storeSchemes[StorageType(job)] != ""
}

// usesNFS says whether the job's checkpoints lie on an NFS server.
func usesNFS(job *mlv1.TrainingJob) bool {
	return CheckpointsEnabled(job) && StorageType(job) == mlv1.StorageNFS
}

// storeURL is the place below the job's bucket and prefix, as the agent understands it; empty for other storage.
func storeURL(job *mlv1.TrainingJob, below ...string) string {
	storage := &job.Spec.Checkpoint.Storage
	place := url.URL{Scheme: storeSchemes[StorageType(job)]}
	var settings url.Values
	switch StorageType(job) {
	case mlv1.StorageS3:
		place.Host, settings = storage.S3Bucket, url.Values{"region": {storage.S3Region}, "endpoint": {storage.S3Endpoint}}
	case mlv1.StorageGCS:
		place.Host = storage.GCSBucket
	case mlv1.StorageAzure:
		place.Host, settings = storage.AzureContainer, url.Values{"account": {storage.AzureAccount}}
	default:
		return ""
	}
	place.Path = path.Join(append([]string{"/", strings.Trim(storage.Prefix, "/")}, below...)...)
	maps.DeleteFunc(settings, func(name string, _ []string) bool { return settings.Get(name) == "" })
	place.RawQuery = settings.Encode()
	return place.String()
}

// storeArea is the place in its object store of the checkpoints that a job with this UID makes.
func storeArea(job *mlv1.TrainingJob, uid types.UID) string {
	return storeURL(job, job.Namespace, job.Name, string(uid))
}

// volumeArea is the same in a volume, as a path below its top.
func volumeArea(job *mlv1.TrainingJob, uid types.UID) string { return path.Join(job.Name, string(uid)) }

// NewestUID is the metadata.uid under which the newest checkpoint of a job lies: that of the job that it was restored from, until it has one
// of its own.
func NewestUID(job *mlv1.TrainingJob) types.UID {
	if former := job.Status.Restored; former != nil && !hasOwnCheckpoint(job) {
		return former.UID
	}
	return job.UID
}

func hasOwnCheckpoint(job *mlv1.TrainingJob) bool {
	return HasCheckpoint(&job.Status) && strings.Contains(job.Status.Checkpoint.Path, string(job.UID))
}

// formerCheckpoints is where the checkpoints lie of the job that this one was restored from, as a value of resumeFrom; empty when it was not,
// or where it began elsewhere and its backup tells no checkpoint.
func formerCheckpoints(job *mlv1.TrainingJob) string {
	former := job.Status.Restored
	if former == nil || !CheckpointsEnabled(job) || job.Spec.Checkpoint.ResumeFrom != "" && !HasCheckpoint(&job.Status) {
		return ""
	}
	if UsesStore(job) {
		return storeArea(job, former.UID)
	}
	return "/" + volumeArea(job, former.UID)
}

// mayResumeFromNothing says whether the training begins at the first epoch when there is no checkpoint to resume from.
func mayResumeFromNothing(job *mlv1.TrainingJob) bool {
	return ResumeFrom(job) == ResumeLatest || formerCheckpoints(job) != ""
}

// isStoreURI says whether a checkpoint is named by its location in an object store.
func isStoreURI(from string) bool {
	scheme, _, ok := strings.Cut(from, "://")
	return ok && (scheme == "s3" || scheme == "gs" || scheme == "azblob")
}

// resumeURL is resumeFrom as a place in an object store, with the settings of the job's own store where it has none of
// its own and is of the same kind; empty when it names no object store.
func resumeURL(job *mlv1.TrainingJob) string {
	from := ResumeFrom(job)
	if from == ResumeLatest && UsesStore(job) {
		return storeURL(job, job.Namespace, job.Name)
	}
	if !isStoreURI(from) {
		return ""
	}
	place, err := url.Parse(from)
	if err != nil || job.Spec.Checkpoint.Storage.Type == "" || storeSchemes[StorageType(job)] != place.Scheme {
		return from
	}
	own, err := url.Parse(storeURL(job))
	if err != nil || place.RawQuery != "" {
		return from
	}
	place.RawQuery = own.RawQuery
	return place.String()
}

// ResumeSecret is the Secret with the credentials for resumeURL; empty for workload identity.
func ResumeSecret(job *mlv1.TrainingJob) string {
	checkpoint := job.Spec.Checkpoint
	if checkpoint.ResumeSecretRef != nil && formerCheckpoints(job) == "" {
		return checkpoint.ResumeSecretRef.Name
	}
	scheme, _, _ := strings.Cut(resumeURL(job), "://")
	if checkpoint.Storage.SecretRef == nil || storeSchemes[StorageType(job)] != scheme {
		return ""
	}
	return checkpoint.Storage.SecretRef.Name
}

// ResumeJob is the TrainingJob whose checkpoints resumeFrom means; empty when it names none.
func ResumeJob(job *mlv1.TrainingJob) string {
	from := ResumeFrom(job)
	if from == ResumeLatest || strings.Contains(from, "/") {
		return ""
	}
	return from
}

// SourceOf is where the newest checkpoints of a job lie; nil when it keeps none.
func SourceOf(job *mlv1.TrainingJob) *mlv1.ResumeSource {
	if !CheckpointsEnabled(job) {
		return nil
	}
	below := volumeArea(job, NewestUID(job))
	switch {
	case UsesClaim(job):
		return &mlv1.ResumeSource{URI: "pvc://" + path.Join(ClaimName(job), below)}
	case usesNFS(job):
		storage := &job.Spec.Checkpoint.Storage
		place := url.URL{Scheme: nfsScheme, Host: storage.NFSServer, Path: storage.NFSPath, Fragment: below}
		return &mlv1.ResumeSource{URI: place.String()}
	}
	source := &mlv1.ResumeSource{URI: storeArea(job, NewestUID(job))}
	if ref := job.Spec.Checkpoint.Storage.SecretRef; ref != nil {
		source.SecretName = ref.Name
	}
	return source
}

// ResolveResume is the job with the name of another TrainingJob in resumeFrom replaced by where that one keeps its
// checkpoints. Without a known source it resumes from nothing.
func ResolveResume(job *mlv1.TrainingJob, source *mlv1.ResumeSource) *mlv1.TrainingJob {
	if ResumeJob(job) == "" {
		return job
	}
	job = job.DeepCopy()
	checkpoint := job.Spec.Checkpoint
	checkpoint.ResumeFrom = ""
	if source == nil {
		return job
	}
	checkpoint.ResumeFrom = source.URI
	if own := SourceOf(job); own != nil && !isStoreURI(source.URI) {
		// Both in one volume: it is mounted once.
		volume := strings.TrimSuffix(own.URI, volumeArea(job, NewestUID(job)))
		if below, same := strings.CutPrefix(source.URI, volume); same {
			checkpoint.ResumeFrom = "/" + below
		}
	}
	if checkpoint.ResumeSecretRef == nil && source.SecretName != "" {
		checkpoint.ResumeSecretRef = &mlv1.SecretReference{Name: source.SecretName}
	}
	return job
}

// resumeVolume is the volume that is mounted to resume from, and the path in it; false when there is none.
func resumeVolume(job *mlv1.TrainingJob) (source corev1.VolumeSource, below string, ok bool) {
	if claim, below, ok := ResumeClaim(job); ok {
		return ClaimSource(claim, true), below, true
	}
	place, err := url.Parse(ResumeFrom(job))
	if err != nil || place.Scheme != nfsScheme {
		return corev1.VolumeSource{}, "", false
	}
	return corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: place.Host, Path: place.Path, ReadOnly: true}}, place.Fragment, true
}

// ResumeDir is resumeFrom as a path that the worker sees; empty when there is nothing to resume from.
func ResumeDir(job *mlv1.TrainingJob) string {
	from := ResumeFrom(job)
	if _, below, ok := resumeVolume(job); ok {
		return path.Join(ResumeMount, below)
	}
	switch {
	case from == "" || ResumeJob(job) != "":
		return ""
	case resumeURL(job) != "":
		return path.Join(checkpointDir(job), ".resume") // where the restore container puts it
	case from == ResumeLatest:
		return path.Join(CheckpointMount, job.Name)
	}
	return path.Join(CheckpointMount, from)
}
