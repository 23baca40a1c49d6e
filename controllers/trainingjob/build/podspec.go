package build

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const (
	// WorkerContainer is the name of the container that trains.
	WorkerContainer = "trainer"

	// CheckpointMount is where workers see the volume of their checkpoints.
	CheckpointMount = "/checkpoints"
	// ResumeMount is where they see the volume of the job that they resume from.
	ResumeMount = "/resume"
	configMount = "/etc/training"

	// gracePeriodSeconds is the time that a worker has to save a checkpoint in a volume when it is told to stop.
	gracePeriodSeconds = 60

	// trainerID is the user and group that workers run as by default.
	trainerID = 1000

	gpuResource         = corev1.ResourceName("nvidia.com/gpu")
	defaultRDMAResource = "rdma/hca"
)

// PodSpec is the one template of all workers of a job.
func PodSpec(job *mlv1.TrainingJob, settings Settings) corev1.PodSpec {
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		Subdomain:                     HeadlessName(job),
		ServiceAccountName:            ServiceAccountName(job),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(GracePeriod(job)),
		SecurityContext:               podSecurity(job),
		ImagePullSecrets:              job.Spec.ImagePullSecrets,
		Containers:                    []corev1.Container{Trainer(job, settings)},
		Volumes:                       volumes(job),
	}
	if s := job.Spec.Scheduling; s != nil {
		spec.PriorityClassName, spec.SchedulerName = s.Priority, s.SchedulerName
		spec.NodeSelector, spec.Affinity, spec.Tolerations = s.NodeSelector, s.Affinity, s.Tolerations
	}
	placeWorkers(job, &spec)
	addTensorBoard(&spec, job, settings)
	return spec
}

// Trainer is the container of a worker.
func Trainer(job *mlv1.TrainingJob, settings Settings) corev1.Container {
	image := job.Spec.Image
	if image == "" {
		image = settings.WorkerImage
	}
	runs := program(job)
	return corev1.Container{
		Name: WorkerContainer, Image: image, ImagePullPolicy: job.Spec.ImagePullPolicy,
		Command: runs.Command, Args: runs.Args,
		Env:       Environment(job),
		Resources: WorkerResources(job),
		Ports: append([]corev1.ContainerPort{
			{Name: "metrics", ContainerPort: job.Spec.Monitoring.MetricsPort, Protocol: corev1.ProtocolTCP},
			{Name: "master", ContainerPort: job.Spec.Networking.MasterPort, Protocol: corev1.ProtocolTCP},
		}, frameworkContainerPorts(job)...),
		VolumeMounts:             mounts(job),
		SecurityContext:          ContainerSecurity(job),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// podSecurity meets the Pod Security level restricted unless the spec says otherwise.
func podSecurity(job *mlv1.TrainingJob) *corev1.PodSecurityContext {
	if job.Spec.SecurityContext != nil {
		return job.Spec.SecurityContext
	}
	return &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](trainerID), RunAsGroup: ptr.To[int64](trainerID),
		FSGroup: ptr.To[int64](trainerID), FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// ContainerSecurity is what the Pod Security level restricted asks of a container; RDMA needs one capability more.
func ContainerSecurity(job *mlv1.TrainingJob) *corev1.SecurityContext {
	capabilities := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if ptr.Deref(job.Spec.Networking.RDMAEnabled, false) {
		capabilities.Add = []corev1.Capability{"IPC_LOCK"}
	}
	return &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: capabilities}
}

// WorkerResources are those of one worker. The API server has checked that a GPU count in the spec is either one
// worker's or the whole job's, so that gpusPerWorker is right in both cases.
func WorkerResources(job *mlv1.TrainingJob) corev1.ResourceRequirements {
	resources := corev1.ResourceRequirements{}
	if job.Spec.Resources != nil {
		resources = *job.Spec.Resources.DeepCopy()
	}
	set := func(name corev1.ResourceName, count int64) {
		quantity := *resource.NewQuantity(count, resource.DecimalSI)
		for _, list := range []*corev1.ResourceList{&resources.Requests, &resources.Limits} {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = quantity
		}
	}
	delete(resources.Requests, gpuResource)
	delete(resources.Limits, gpuResource)
	if gpus := GpusPerWorker(job); gpus > 0 {
		set(gpuResource, int64(gpus))
	}
	if ptr.Deref(job.Spec.Networking.RDMAEnabled, false) {
		set(rdmaResource(job), 1)
	}
	return resources
}

// DividesGPUs says whether the spec's GPU count is the whole job's, so that a worker gets a part of it.
func DividesGPUs(job *mlv1.TrainingJob) bool {
	if job.Spec.Resources == nil || job.Spec.NumWorkers == 1 {
		return false
	}
	for _, list := range []corev1.ResourceList{job.Spec.Resources.Limits, job.Spec.Resources.Requests} {
		if quantity, ok := list[gpuResource]; ok && quantity.Value() != int64(GpusPerWorker(job)) {
			return true
		}
	}
	return false
}

// GpusPerWorker is how many GPUs each worker of a job has.
func GpusPerWorker(job *mlv1.TrainingJob) int32 { return ptr.Deref(job.Spec.GPUsPerWorker, 1) }

func rdmaResource(job *mlv1.TrainingJob) corev1.ResourceName {
	if name := job.Spec.Networking.RDMAResource; name != "" {
		return corev1.ResourceName(name)
	}
	return defaultRDMAResource
}

func volumes(job *mlv1.TrainingJob) []corev1.Volume {
	list := []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ConfigName(job)},
		}}},
		// Data loaders and NCCL share memory between processes, for which the runtime's 64 MiB are too little.
		{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
	}
	return append(list, checkpointVolumes(job)...)
}

func mounts(job *mlv1.TrainingJob) []corev1.VolumeMount {
	list := []corev1.VolumeMount{
		{Name: "config", MountPath: configMount, ReadOnly: true},
		{Name: "shm", MountPath: "/dev/shm"},
	}
	return append(list, checkpointMounts(job)...)
}

// checkpointDir is the job's own directory in the volume. It has the UID in it, so that a job that is deleted and
// created again under the same name does not go on from the old one's checkpoints unless resumeFrom says so.
func checkpointDir(job *mlv1.TrainingJob) string {
	return path.Join(CheckpointMount, job.Name, string(job.UID))
}

// askForInstances labels the pods, so that a SpotInstanceVM may create instances for them. A name
// that is too long for a label is that of no SpotInstanceVM, which the condition says.
func askForInstances(job *mlv1.TrainingJob, template *corev1.PodTemplateSpec) {
	if name := SpotName(job); name != "" && len(name) <= validation.LabelValueMaxLength {
		template.Labels[spotv1alpha1.LabelSpotInstanceVM] = name
	}
}

// placeWorkers binds the pods to the set of nodes to which the job is admitted. What the spec requires of nodes holds as well.
func placeWorkers(job *mlv1.TrainingJob, pod *corev1.PodSpec) {
	if !IsAdmitted(&job.Status) || QueueName(job) == "" {
		return
	}
	affinity := pod.Affinity.DeepCopy()
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := []corev1.NodeSelectorTerm{{}}
	if r := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		required = r.NodeSelectorTerms
	}
	var terms []corev1.NodeSelectorTerm
	for _, on := range job.Status.Admission.Assignments {
		for _, term := range required {
			bound := *term.DeepCopy()
			bound.MatchFields = append(bound.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{on.NodeName},
			})
			terms = append(terms, bound)
		}
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	pod.Affinity = affinity
}

// IsAdmitted says whether the queue has given the job a place that it keeps.
func IsAdmitted(status *mlv1.TrainingJobStatus) bool {
	return status.Admission != nil && status.Admission.AdmittedTime != nil
}

// Resources are the sums over all workers, with the utilization that was reported last.
func Resources(job *mlv1.TrainingJob, before *mlv1.ResourcesStatus) *mlv1.ResourcesStatus {
	of := WorkerResources(job)
	sum := &mlv1.ResourcesStatus{Workers: job.Spec.NumWorkers, GPUs: job.Spec.NumWorkers * GpusPerWorker(job)}
	sum.CPU = Times(of, corev1.ResourceCPU, job.Spec.NumWorkers)
	sum.Memory = Times(of, corev1.ResourceMemory, job.Spec.NumWorkers)
	if before != nil {
		sum.GPUUtilizationPercent = before.GPUUtilizationPercent
	}
	return sum
}

// Times is what the workers request together; limits stand for requests that are not set, as for any pod.
func Times(of corev1.ResourceRequirements, name corev1.ResourceName, workers int32) *resource.Quantity {
	quantity, ok := of.Requests[name]
	if !ok {
		quantity, ok = of.Limits[name]
	}
	if !ok {
		return nil
	}
	sum := quantity.DeepCopy()
	sum.Mul(int64(workers))
	return &sum
}
