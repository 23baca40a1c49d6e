package build

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// credentialsMount and resumeCredentialsMount are in the agent's containers only: the training has no use for them.
	credentialsMount       = "/var/run/checkpoint-credentials" //nolint:gosec // the path of a mount
	resumeCredentialsMount = "/var/run/resume-credentials"     //nolint:gosec // the path of a mount

	// storeGracePeriodSeconds is the time from the order to stop until the pod is killed where the last checkpoint must
	// reach an object store first.
	storeGracePeriodSeconds = 300
)

// GracePeriod of the job's pods in seconds.
func GracePeriod(job *mlv1.TrainingJob) int64 {
	return podbuild.GracePeriod(&job.Spec.Settings, leastGracePeriod(job))
}

// leastGracePeriod is what a last checkpoint may take.
func leastGracePeriod(job *mlv1.TrainingJob) int64 {
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
	volumes, _ := inPod(credentials(job, restores))
	pod.Volumes = append(pod.Volumes, volumes...)
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
	seen := checkpointVolumes(job)
	env := []corev1.EnvVar{
		framework.Text("CHECKPOINT_DIR", checkpointDir(job)),
		framework.ReplicaIndex("REPLICA_INDEX"),
		framework.FromAnnotation("CHECKPOINT_ATTEMPT", mlv1.AnnotationStart),
		framework.Number("CHECKPOINT_RETENTION", job.Spec.Checkpoint.Retention),
		framework.Number("AGENT_PORT", AgentPort(job, settings)),
	}
	if UsesStore(job) {
		env = append(env, framework.Text("CHECKPOINT_STORE", storeArea(job, job.UID)))
	}
	restores := name == report.RestoreContainer
	for _, secret := range credentials(job, restores) {
		seen, env = append(seen, secret), append(env, framework.Text(secret.variable, secret.MountPath))
	}
	if from := ResumeDir(job); restores && from != "" { // when the job has no checkpoint of its own
		env = append(env, resumeFromEnv(job, cmp.Or(resumeURL(job), from))...)
	}
	_, mounts := inPod(seen)
	container := operatorContainer(job, settings, name, "checkpoint-agent", command)
	container.Env, container.VolumeMounts = env, mounts
	return container
}

// operatorContainer runs a program of the operator beside the training.
func operatorContainer(job *mlv1.TrainingJob, settings Settings, name string, args ...string) corev1.Container {
	return podbuild.OperatorContainer(name, settings.AgentImage, WorkerResources(job), args...)
}

// volume is a volume of the pods, and where containers see it.
type volume struct {
	corev1.VolumeMount

	source corev1.VolumeSource
	// variable tells containers the path; empty where they know it.
	variable string
}

// inPod are volumes as the pod and its containers have them.
func inPod(list []volume) (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	for _, v := range list {
		volumes = append(volumes, corev1.Volume{Name: v.Name, VolumeSource: v.source})
		mounts = append(mounts, v.VolumeMount)
	}
	return volumes, mounts
}

// credentials are the Secrets for the object stores of the job's checkpoints and, where it restores, of those that it resumes from. They are
// optional, so that the training starts although one is missing; the agent says so and goes on when it appears.
func credentials(job *mlv1.TrainingJob, restores bool) []volume {
	var list []volume
	add := func(name, secret, at, variable string) {
		list = append(list, volume{
			corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true},
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, Optional: ptr.To(true)}}, variable,
		})
	}
	if UsesStore(job) && job.Spec.Checkpoint.Storage.SecretRef != nil {
		add("checkpoint-credentials", job.Spec.Checkpoint.Storage.SecretRef.Name, credentialsMount, "CHECKPOINT_CREDENTIALS")
	}
	if restores && resumeURL(job) != "" && ResumeSecret(job) != "" {
		add("resume-credentials", ResumeSecret(job), resumeCredentialsMount, "RESUME_CREDENTIALS")
	}
	return list
}

// checkpointVolumes hold the checkpoints of the job, and those that it resumes from. With an object store, checkpoints
// are written to the node's disk first.
func checkpointVolumes(job *mlv1.TrainingJob) []volume {
	var list []volume
	if source, ok := checkpointSource(job); ok {
		list = append(list, volume{VolumeMount: corev1.VolumeMount{Name: "checkpoints", MountPath: CheckpointMount}, source: source})
	}
	if source, _, ok := resumeVolume(job); ok {
		list = append(list, volume{VolumeMount: corev1.VolumeMount{Name: "resume", MountPath: ResumeMount, ReadOnly: true}, source: source})
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

// AgentPort is where the agent listens. The containers of a pod share their ports, so it makes way for those that the
// spec chooses.
func AgentPort(job *mlv1.TrainingJob, settings Settings) int32 {
	port := cmp.Or(settings.AgentPort, report.Port)
	for port == job.Spec.Monitoring.MetricsPort || port == job.Spec.Networking.MasterPort {
		port++
	}
	return port
}
