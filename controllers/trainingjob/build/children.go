package build

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
)

// Labels are on every child.
func Labels(job *mlv1.TrainingJob) map[string]string {
	return map[string]string{mlv1.LabelTrainingJob: job.Name, mlv1.LabelTrainingJobCompact: job.Name}
}

// Meta is the metadata of a child of the job.
func Meta(job *mlv1.TrainingJob, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: job.Namespace, Labels: Labels(job),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, mlv1.GroupVersion.WithKind(Kind))},
	}
}

// ServiceAccount is the one that the pods of a job run as. It has no rights, and no token is mounted.
func ServiceAccount(job *mlv1.TrainingJob) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: Meta(job, ServiceAccountName(job)), AutomountServiceAccountToken: ptr.To(false)}
}

// HeadlessService publishes every worker under its host name as soon as it has an address, because workers look for one
// another before they are ready.
func HeadlessService(job *mlv1.TrainingJob) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: Meta(job, HeadlessName(job)),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: map[string]string{mlv1.LabelTrainingJob: job.Name},
			Ports:    servicePorts(workerPorts(job)[1:]), // metrics are read from replica 0
		},
	}
}

// MasterService leads to replica 0. It is headless too: it saves a cluster address and the proxy rules per job.
func MasterService(job *mlv1.TrainingJob) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: Meta(job, MasterName(job)),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{mlv1.LabelTrainingJob: job.Name, batchv1.JobCompletionIndexAnnotation: "0"},
			Ports:     servicePorts(slices.DeleteFunc(workerPorts(job), func(port framework.Port) bool { return !port.Master })),
		},
	}
}

// workerPorts are those at which a worker is reached, that of its metrics first.
func workerPorts(job *mlv1.TrainingJob) []framework.Port {
	return append([]framework.Port{
		{Name: "metrics", Number: job.Spec.Monitoring.MetricsPort, Master: true}, {Name: "master", Number: job.Spec.Networking.MasterPort, Master: true},
	}, frameworkOf(job).Ports...)
}

func servicePorts(of []framework.Port) []corev1.ServicePort {
	var ports []corev1.ServicePort
	for _, port := range of {
		ports = append(ports, corev1.ServicePort{
			Name: port.Name, Port: port.Number, TargetPort: intstr.FromInt32(port.Number), Protocol: corev1.ProtocolTCP,
		})
	}
	return ports
}

// ConfigMap holds the settings of the training as files, for programs that rather read files than the environment.
func ConfigMap(job *mlv1.TrainingJob) *corev1.ConfigMap {
	networking, _ := json.Marshal(map[string]any{
		"backend": Backend(job), "masterAddress": masterAddress(job), "masterPort": job.Spec.Networking.MasterPort,
		"rdmaEnabled": ptr.Deref(job.Spec.Networking.RDMAEnabled, false), "worldSize": job.Spec.NumWorkers,
	}) // a map of scalars always has a JSON form
	files := map[string]string{
		"framework": string(job.Spec.Framework), "model": job.Spec.Model, "dataset": job.Spec.Dataset,
		"hyperparameters.json": hyperparametersJSON(job), "networking.json": string(networking),
	}
	maps.Copy(files, frameworkOf(job).Files())
	return &corev1.ConfigMap{ObjectMeta: Meta(job, ConfigName(job)), Data: files}
}

// Claim is owned by the job only when it is to be deleted with it: by default checkpoints outlive the job.
func Claim(job *mlv1.TrainingJob) *corev1.PersistentVolumeClaim {
	storage := job.Spec.Checkpoint.Storage
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: Meta(job, ClaimName(job)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: storage.AccessModes, StorageClassName: storage.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: ptr.Deref(storage.Size, resource.MustParse("10Gi")),
			}},
		},
	}
	if len(claim.Spec.AccessModes) == 0 {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if storage.RetentionPolicy != mlv1.ClaimDelete {
		claim.OwnerReferences = nil
	}
	return claim
}

// Workers is the Indexed Job of one attempt. Any failed pod fails the whole Job: whether and when it is started
// again is for the operator to say, because the workers can only go on together. Those of elasticSpec can without one.
func Workers(job *mlv1.TrainingJob, settings Settings, attempt int32) *batchv1.Job {
	workers := job.Spec.NumWorkers
	meta := Meta(job, WorkersName(job))
	meta.Annotations = attemptAnnotations(job, attempt)
	meta.Annotations[mlv1.AnnotationGeneration] = generationOf(job)
	if IsIsolated(job, settings) {
		meta.Annotations[mlv1.AnnotationIsolated] = "true"
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: Labels(job), Annotations: attemptAnnotations(job, attempt)},
		Spec:       PodSpec(job, settings),
	}
	podbuild.AddSource(&template.Spec, job.Spec.Source, job.Status.Source, settings.AgentImage)
	addPreflight(&template.Spec, job, settings)
	podbuild.Add(&template, &job.Spec.Settings, map[string]string{mlv1.LabelTrainingJob: job.Name})
	addCheckpointAgent(&template.Spec, job, settings, attempt)
	built := &batchv1.Job{
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion),
			Completions:    ptr.To(workers), Parallelism: ptr.To(workers), BackoffLimit: ptr.To[int32](0),
			PodReplacementPolicy: ptr.To(batchv1.Failed),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{Action: batchv1.PodFailurePolicyActionFailJob, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
					{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
				}},
				{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					ContainerName: ptr.To(WorkerContainer), Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{0},
				}},
			}},
			Template: template,
		},
	}
	askForInstances(job, &built.Spec.Template)
	elasticSpec(job, settings, &built.Spec)
	return built
}

func attemptAnnotations(job *mlv1.TrainingJob, attempt int32) map[string]string {
	// There are at least as many starts as restarts. A status from before starts were counted says less.
	start := max(job.Status.StartCount, attempt)
	return map[string]string{
		mlv1.AnnotationAttempt: strconv.Itoa(int(attempt)), mlv1.AnnotationStart: strconv.Itoa(int(start)),
	}
}

// AttemptOf is the number of restarts before this Job was made.
func AttemptOf(workers *batchv1.Job) int32 { return countIn(workers, mlv1.AnnotationAttempt) }

// StartOf is the number of starts before this Job was made. Jobs from before starts were counted have that of restarts.
func StartOf(workers *batchv1.Job) int32 {
	return max(countIn(workers, mlv1.AnnotationStart), AttemptOf(workers))
}

func countIn(workers *batchv1.Job, annotation string) int32 {
	n, _ := strconv.ParseInt(workers.Annotations[annotation], 10, 32) // 0 of what is no number
	return int32(n)
}
