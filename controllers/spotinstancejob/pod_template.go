package spotinstancejob

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// restoredCommand stands where a container has no command: the image of a checkpoint names none, and a container without
// any is refused. It is never run, because the processes of the checkpoint go on instead.
const restoredCommand = "restored-from-checkpoint"

// startFrom has the containers of a pod go on from a checkpoint.
func startFrom(job *spotv1alpha1.SpotInstanceJob, from origin, pod *corev1.PodSpec) {
	private := len(pod.ImagePullSecrets) > 0
	if c := job.Spec.CheckpointConfig; c != nil && c.CheckpointRepoCredentialRef != nil {
		secret := corev1.LocalObjectReference{Name: c.CheckpointRepoCredentialRef.Name}
		if !slices.Contains(pod.ImagePullSecrets, secret) {
			pod.ImagePullSecrets = append(pod.ImagePullSecrets, secret)
		}
	}
	for i := range pod.Containers {
		container := &pod.Containers[i]
		image, ok := from.images[container.Name]
		if !ok {
			continue
		}
		if private {
			pullOriginal(pod, *container)
		}
		container.Image = image
		if len(container.Command) == 0 {
			container.Command = []string{restoredCommand}
		}
		if container.ImagePullPolicy == corev1.PullNever {
			container.ImagePullPolicy = corev1.PullIfNotPresent
		}
	}
}

// What containers get so that the training can save to checkpointStorage.
const (
	envReplica       = "SPOT_REPLICA"
	envStorageType   = "CHECKPOINT_STORAGE_TYPE"
	envBucket        = "CHECKPOINT_BUCKET"
	envPathPrefix    = "CHECKPOINT_PATH_PREFIX"
	envStorageURL    = "CHECKPOINT_STORAGE_URL"
	envCredentials   = "GOOGLE_APPLICATION_CREDENTIALS" //nolint:gosec // the name of a variable
	credentialsKey   = "credentials.json"
	credentialsMount = "/var/run/secrets/training.dcnlab.com/gcp" //nolint:gosec // the path of a mount
	credentialsName  = "gcp-credentials"
)

// schemes are how the URLs of buckets begin.
var schemes = map[spotv1alpha1.StorageType]string{
	spotv1alpha1.StorageGCS: "gs", spotv1alpha1.StorageS3: "s3", spotv1alpha1.StorageAzure: "azblob",
}

// addStorage tells the containers where the training may save what it saves itself. What the template sets stays.
func addStorage(job *spotv1alpha1.SpotInstanceJob, index int, pod *corev1.PodSpec) {
	env := []corev1.EnvVar{{Name: envReplica, Value: strconv.Itoa(index)}}
	var mount *corev1.VolumeMount
	if config := job.Spec.CheckpointConfig; config != nil && config.CheckpointStorage != nil {
		storage := config.CheckpointStorage
		kind := cmp.Or(storage.Type, spotv1alpha1.StorageGCS)
		prefix := strings.Trim(storage.PathPrefix, "/")
		env = append(env,
			corev1.EnvVar{Name: envStorageType, Value: string(kind)}, corev1.EnvVar{Name: envBucket, Value: storage.Bucket},
			corev1.EnvVar{Name: envPathPrefix, Value: prefix},
			corev1.EnvVar{Name: envStorageURL, Value: schemes[kind] + "://" + path.Join(storage.Bucket, prefix)})
		if ref := job.Spec.GCPCredentialsSecretRef; ref != nil && kind == spotv1alpha1.StorageGCS && !hasVolume(pod, credentialsName) {
			env = append(env, corev1.EnvVar{Name: envCredentials, Value: credentialsMount + "/" + credentialsKey})
			mount = &corev1.VolumeMount{Name: credentialsName, MountPath: credentialsMount, ReadOnly: true}
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: credentialsName, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{
					SecretName: ref.Name, Items: []corev1.KeyToPath{{Key: credentialsKey, Path: credentialsKey}},
				},
			}})
		}
	}
	for i := range pod.Containers {
		container := &pod.Containers[i]
		for _, variable := range env {
			set := slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == variable.Name })
			if !set {
				container.Env = append(container.Env, variable)
			}
		}
		if mount != nil {
			container.VolumeMounts = append(container.VolumeMounts, *mount)
		}
	}
}

func hasVolume(pod *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(pod.Volumes, func(volume corev1.Volume) bool { return volume.Name == name })
}

// originalPrefix begins the names of the init containers that bring original images.
const originalPrefix = "original-"

// pullOriginal has the kubelet pull the image that a restored container was made from. The container runtime needs it
// beside the checkpoint. Where it is missing, as on a new node, it pulls it itself, but without credentials: so the images
// of pods with pull secrets are pulled before, by init containers that end at once.
func pullOriginal(pod *corev1.PodSpec, original corev1.Container) {
	small := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}
	name := originalPrefix + original.Name
	if len(name) > validation.DNS1123LabelMaxLength {
		name = name[:validation.DNS1123LabelMaxLength-1] + "x" // never a dash at the end
	}
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: name, Image: original.Image, ImagePullPolicy: original.ImagePullPolicy,
		Command:   []string{"/bin/sh", "-c", "exit 0"},
		Resources: corev1.ResourceRequirements{Requests: small, Limits: small}, SecurityContext: original.SecurityContext,
	})
}
