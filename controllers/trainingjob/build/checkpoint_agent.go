package build

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// credentialsMount and resumeCredentialsMount are in the agent's containers only: the training has no use for them.
	credentialsMount       = "/var/run/checkpoint-credentials"
	resumeCredentialsMount = "/var/run/resume-credentials"

	// storeGracePeriodSeconds is the time from the order to stop until the pod is killed where the last checkpoint must
	// reach an object store first.
	storeGracePeriodSeconds = 300
)

// GracePeriod of the job's pods in seconds.
func GracePeriod(job *mlv1.TrainingJob) int64 {
	if UsesStore(job) {
		return storeGracePeriodSeconds
	}
	return gracePeriodSeconds
}

// addCheckpointAgent adds to the pods of an attempt what keeps their checkpoints: a sidecar that brings them into the
// storage, and before the training an init container that brings the newest one back where there may be one.
func addCheckpointAgent(pod *corev1.PodSpec, job *mlv1.TrainingJob, settings Settings, attempt int32) {
	restores := mayRestore(job, settings, attempt)
	if restores {
		pod.InitContainers = append(pod.InitContainers, agentContainer(job, settings, report.RestoreContainer, "restore"))
	}
	if CheckpointsEnabled(job) {
		sync := agentContainer(job, settings, report.AgentContainer, "sync")
		sync.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		sync.Ports = containerPorts(framework.Port{Name: "checkpoints", Number: AgentPort(job, settings)})
		pod.InitContainers = append(pod.InitContainers, sync)
	}
	if (restores || CheckpointsEnabled(job)) && UsesStore(job) && job.Spec.Checkpoint.Storage.SecretRef != nil {
		pod.Volumes = append(pod.Volumes, credentialsVolume("checkpoint-credentials", job.Spec.Checkpoint.Storage.SecretRef.Name))
	}
	if restores && resumeURL(job) != "" && ResumeSecret(job) != "" {
		pod.Volumes = append(pod.Volumes, credentialsVolume("resume-credentials", ResumeSecret(job)))
	}
}

// mayRestore says whether there may be a checkpoint to start an attempt from. The first attempt of a job that does not
// resume from anything has none, and starts sooner without looking for one.
func mayRestore(job *mlv1.TrainingJob, settings Settings, attempt int32) bool {
	if ResumeDir(job) != "" {
		return true
	}
	// Pods of one Job can run after others of it: Kueue stops and starts it, and an elastic one replaces its pods.
	again := LocalQueue(job) != "" || ResizesInPlace(job, settings)
	return CheckpointsEnabled(job) && (again || attempt > 0 || job.Status.StartTime != nil || HasCheckpoint(&job.Status))
}

// HasCheckpoint says whether a job has a checkpoint to start from.
func HasCheckpoint(status *mlv1.TrainingJobStatus) bool {
	return status.Checkpoint != nil && status.Checkpoint.Path != ""
}

func agentContainer(job *mlv1.TrainingJob, settings Settings, name, command string) corev1.Container {
	container := corev1.Container{
		Name: name, Image: settings.AgentImage,
		Args:      []string{"checkpoint-agent", command},
		Env:       agentEnv(job, settings),
		Resources: AgentResources(job), SecurityContext: child.Restricted(), VolumeMounts: checkpointMounts(job),
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	container.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	if UsesStore(job) && job.Spec.Checkpoint.Storage.SecretRef != nil {
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: "checkpoint-credentials", MountPath: credentialsMount, ReadOnly: true})
		container.Env = append(container.Env, framework.Text("CHECKPOINT_CREDENTIALS", credentialsMount))
	}
	if name != report.RestoreContainer {
		return container
	}
	container.Env = append(container.Env, resumeEnv(job)...)
	if resumeURL(job) != "" && ResumeSecret(job) != "" {
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: "resume-credentials", MountPath: resumeCredentialsMount, ReadOnly: true})
	}
	return container
}

func agentEnv(job *mlv1.TrainingJob, settings Settings) []corev1.EnvVar {
	env := []corev1.EnvVar{
		framework.Text("CHECKPOINT_DIR", checkpointDir(job)),
		framework.ReplicaIndex("REPLICA_INDEX"),
		framework.FromAnnotation("CHECKPOINT_ATTEMPT", mlv1.AnnotationStart),
		framework.Number("CHECKPOINT_RETENTION", job.Spec.Checkpoint.Retention),
		framework.Number("AGENT_PORT", AgentPort(job, settings)),
	}
	if UsesStore(job) {
		env = append(env, framework.Text("CHECKPOINT_STORE", storeArea(job)))
	}
	return env
}

// resumeEnv says what the restore container looks for when the job has no checkpoint of its own.
func resumeEnv(job *mlv1.TrainingJob) []corev1.EnvVar {
	from := ResumeDir(job)
	if from == "" {
		return nil
	}
	var env []corev1.EnvVar
	if store := resumeURL(job); store != "" {
		from = store
		if ResumeSecret(job) != "" {
			env = append(env, framework.Text("RESUME_CREDENTIALS", resumeCredentialsMount))
		}
	}
	return append(env, resumeFromEnv(job, from)...)
}

// credentialsVolume is optional, so that the training starts although the Secret is missing; the agent says so and
// goes on when it appears.
func credentialsVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, Optional: ptr.To(true)},
	}}
}

// checkpointVolumes hold the checkpoints of the job, and those that it resumes from. With an object store, checkpoints
// are written to the node's disk first.
func checkpointVolumes(job *mlv1.TrainingJob) []corev1.Volume {
	var list []corev1.Volume
	if source, ok := checkpointSource(job); ok {
		list = append(list, corev1.Volume{Name: "checkpoints", VolumeSource: source})
	}
	if source, _, ok := resumeVolume(job); ok {
		list = append(list, corev1.Volume{Name: "resume", VolumeSource: source})
	}
	return list
}

func checkpointSource(job *mlv1.TrainingJob) (corev1.VolumeSource, bool) {
	switch {
	case UsesClaim(job):
		return ClaimSource(ClaimName(job), false), true
	case usesNFS(job):
		storage := &job.Spec.Checkpoint.Storage
		return corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: storage.NFSServer, Path: storage.NFSPath}}, true
	case UsesStore(job) || ResumeDir(job) != "":
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, true
	}
	return corev1.VolumeSource{}, false
}

// ClaimSource is the volume of a PersistentVolumeClaim.
func ClaimSource(claim string, readOnly bool) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}
}

func checkpointMounts(job *mlv1.TrainingJob) []corev1.VolumeMount {
	var list []corev1.VolumeMount
	if _, ok := checkpointSource(job); ok {
		list = append(list, corev1.VolumeMount{Name: "checkpoints", MountPath: CheckpointMount})
	}
	if _, _, ok := resumeVolume(job); ok {
		list = append(list, corev1.VolumeMount{Name: "resume", MountPath: ResumeMount, ReadOnly: true})
	}
	return list
}

// AgentPort is where the agent listens. The containers of a pod share their ports, so it makes way for those that the
// spec chooses.
func AgentPort(job *mlv1.TrainingJob, settings Settings) int32 {
	port := cmp.Or(settings.AgentPort, report.Port)
	for port == job.Spec.Monitoring.MetricsPort || port == job.Spec.Networking.MasterPort {
		port++
	}
	return port
}

// AgentResources are small. Where the worker has a CPU limit the agent gets one too, since the namespace may ask for
// limits; and where the pod would be of the class Guaranteed without it, it stays so.
func AgentResources(job *mlv1.TrainingJob) corev1.ResourceRequirements {
	small := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
	worker := WorkerResources(job)
	if _, limited := worker.Limits[corev1.ResourceCPU]; !limited {
		return small
	}
	small.Limits[corev1.ResourceCPU] = resource.MustParse("1")
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := worker.Limits[name]
		request, requested := worker.Requests[name]
		if !limited || requested && request.Cmp(limit) != 0 {
			return small
		}
	}
	guaranteed := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	return corev1.ResourceRequirements{Requests: guaranteed, Limits: guaranteed.DeepCopy()}
}
