package build

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
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

	gpuResource         = corev1.ResourceName("nvidia.com/gpu")
	defaultRDMAResource = corev1.ResourceName("rdma/hca")
)

// PodSpec is the one template of all workers of a job.
func PodSpec(job *mlv1.TrainingJob, settings Settings) corev1.PodSpec {
	volumes, _ := inPod(workerVolumes(job))
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		Subdomain:                     HeadlessName(job),
		ServiceAccountName:            ServiceAccountName(job),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(GracePeriod(job)),
		SecurityContext:               cmp.Or(job.Spec.SecurityContext, child.RestrictedPod()),
		ImagePullSecrets:              job.Spec.ImagePullSecrets,
		Containers:                    []corev1.Container{Trainer(job, settings)},
		Volumes:                       volumes,
	}
	if s := job.Spec.Scheduling; s != nil {
		spec.PriorityClassName, spec.SchedulerName = s.Priority, s.SchedulerName
		spec.NodeSelector, spec.Affinity, spec.Tolerations = s.NodeSelector, s.Affinity, s.Tolerations
	}
	placeWorkers(job, &spec)
	avoidNoticed(&spec)
	addTensorBoard(&spec, job, settings)
	return spec
}

// Trainer is the container of a worker.
func Trainer(job *mlv1.TrainingJob, settings Settings) corev1.Container {
	program := frameworkOf(job).Program(namedProgram(job))
	_, mounts := inPod(workerVolumes(job))
	return corev1.Container{
		Name: WorkerContainer, Image: cmp.Or(job.Spec.Image, settings.WorkerImage), ImagePullPolicy: job.Spec.ImagePullPolicy,
		Command: program.Command, Args: program.Args,
		Env:                      Environment(job),
		Resources:                WorkerResources(job),
		Ports:                    containerPorts(workerPorts(job)...),
		VolumeMounts:             mounts,
		SecurityContext:          ContainerSecurity(job),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func containerPorts(of ...framework.Port) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for _, port := range of {
		ports = append(ports, corev1.ContainerPort{Name: port.Name, ContainerPort: port.Number, Protocol: corev1.ProtocolTCP})
	}
	return ports
}

// ContainerSecurity is what the Pod Security level restricted asks of a container; RDMA needs one capability more.
func ContainerSecurity(job *mlv1.TrainingJob) *corev1.SecurityContext {
	security := child.Restricted()
	if ptr.Deref(job.Spec.Networking.RDMAEnabled, false) {
		security.Capabilities.Add = []corev1.Capability{"IPC_LOCK"}
	}
	return security
}

// WorkerResources are those of one worker. The API server has checked that a GPU count in the spec is either one
// worker's or the whole job's, so that gpusPerWorker is right in both cases.
func WorkerResources(job *mlv1.TrainingJob) corev1.ResourceRequirements {
	all := workerdefaults.With(job.Spec.Resources, job.Status.DefaultResources)
	resources := *all.DeepCopy()
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
		set(cmp.Or(corev1.ResourceName(job.Spec.Networking.RDMAResource), defaultRDMAResource), 1)
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

// workerVolumes are those that a worker sees.
func workerVolumes(job *mlv1.TrainingJob) []volume {
	config := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: ConfigName(job)}}
	return append([]volume{
		{
			VolumeMount: corev1.VolumeMount{Name: "config", MountPath: configMount, ReadOnly: true},
			source:      corev1.VolumeSource{ConfigMap: config},
		},
		{ // Data loaders and NCCL share memory between processes, for which the runtime's 64 MiB are too little.
			VolumeMount: corev1.VolumeMount{Name: "shm", MountPath: "/dev/shm"},
			source:      corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		},
	}, checkpointVolumes(job)...)
}

// checkpointDir is the job's own directory in the volume. It has the UID in it, so that a job that is deleted and
// created again under the same name does not go on from the old one's checkpoints unless resumeFrom says so.
func checkpointDir(job *mlv1.TrainingJob) string {
	return path.Join(CheckpointMount, volumeArea(job, job.UID))
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
	var nodes []string
	for _, on := range job.Status.Admission.Assignments {
		nodes = append(nodes, on.NodeName)
	}
	podbuild.PlaceOn(pod, nodes...)
}

// avoidNoticed keeps pods that tolerate all taints off nodes with a preemption notice, whose taint they tolerate too. One that names that
// taint may start there.
func avoidNoticed(pod *corev1.PodSpec) {
	if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == "" && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	}) {
		return
	}
	podbuild.RequireOfNodes(pod, func(required []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
		for i := range required {
			required[i].MatchExpressions = append(required[i].MatchExpressions, corev1.NodeSelectorRequirement{
				Key: spotv1alpha1.LabelPreemption, Operator: corev1.NodeSelectorOpDoesNotExist,
			})
		}
		return required
	})
}

// IsAdmitted says whether the queue has given the job a place that it keeps.
func IsAdmitted(status *mlv1.TrainingJobStatus) bool {
	return status.Admission != nil && status.Admission.AdmittedTime != nil
}

// Resources are the sums over all workers, with the utilization that was reported last.
func Resources(job *mlv1.TrainingJob, before *mlv1.ResourcesStatus) *mlv1.ResourcesStatus {
	sum := &mlv1.ResourcesStatus{Workers: job.Spec.NumWorkers, GPUs: job.Spec.NumWorkers * GpusPerWorker(job)}
	requests := Requests(job, job.Spec.NumWorkers)
	if cpu, ok := requests[corev1.ResourceCPU]; ok {
		sum.CPU = &cpu
	}
	if memory, ok := requests[corev1.ResourceMemory]; ok {
		sum.Memory = &memory
	}
	if before != nil {
		sum.GPUUtilizationPercent = before.GPUUtilizationPercent
	}
	return sum
}

// Requests are what so many workers request together, each with the init containers and sidecars of the spec; limits stand for requests
// that are not set, as for any pod.
func Requests(job *mlv1.TrainingJob, workers int32) corev1.ResourceList {
	sum := podbuild.Requests(&job.Spec.Settings, job.Spec.Source, WorkerResources(job))
	for name, quantity := range sum {
		quantity.Mul(int64(workers))
		sum[name] = quantity
	}
	return sum
}
