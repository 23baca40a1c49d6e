package build

import (
	"cmp"
	"path"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

const (
	// TensorBoardContainer is the name of the container that runs TensorBoard.
	TensorBoardContainer = "tensorboard"
	// tensorBoardMount is where event files lie that are not kept on the claim of the checkpoints.
	tensorBoardMount = "/tensorboard"
	// tensorBoardFolder of that claim holds the event files of all jobs. No job can have a name like it.
	tensorBoardFolder = ".tensorboard"
)

// TensorBoardScript runs TensorBoard next to replica 0; all pods have one template, so in the others it only waits.
// It never ends by itself: training must not wait for a TensorBoard that fails, nor be taken for not ready.
const TensorBoardScript = `trap 'kill "$child" 2>/dev/null; exit 0' TERM INT
while :; do
  if [ "$REPLICA_ID" = 0 ]; then
    tensorboard --logdir="$TENSORBOARD_LOGDIR" --port="$TENSORBOARD_PORT" --bind_all --reload_interval=15 &
  else
    sleep 3600 &
  fi
  child=$!
  wait "$child"
  sleep 10 &
  child=$!
  wait "$child"
done`

// TensorBoardEnabled says whether a job asks for a TensorBoard.
func TensorBoardEnabled(job *mlv1.TrainingJob) bool {
	return ptr.Deref(job.Spec.Monitoring.TensorboardEnabled, false)
}

// TensorBoardName is the name of the Deployment and the Service of a job's TensorBoard.
func TensorBoardName(job *mlv1.TrainingJob) string { return job.Name + "-tensorboard" }

// tensorBoardDir is where workers write event files. On the claim of the checkpoints they outlive restarts and the job.
func tensorBoardDir(job *mlv1.TrainingJob) string {
	if UsesClaim(job) {
		return path.Join(CheckpointMount, tensorBoardFolder, volumeArea(job, job.UID))
	}
	return tensorBoardMount
}

func tensorBoardEnv(job *mlv1.TrainingJob) []corev1.EnvVar {
	if !TensorBoardEnabled(job) {
		return nil
	}
	return []corev1.EnvVar{framework.Text("TENSORBOARD_LOGDIR", tensorBoardDir(job))}
}

// addTensorBoard adds the sidecar to the workers' pods, and the volume that it shares with the trainer where there is no
// claim. The trainer is the pod's first container.
func addTensorBoard(pod *corev1.PodSpec, job *mlv1.TrainingJob, settings Settings) {
	if !TensorBoardEnabled(job) {
		return
	}
	mount := corev1.VolumeMount{Name: "checkpoints", MountPath: CheckpointMount, ReadOnly: true}
	if !UsesClaim(job) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{
			Name: TensorBoardContainer, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
		mount = corev1.VolumeMount{Name: TensorBoardContainer, MountPath: tensorBoardMount}
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, mount)
		mount.ReadOnly = true
	}
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: TensorBoardContainer, Image: cmp.Or(job.Spec.Monitoring.TensorboardImage, settings.TensorBoardImage),
		Command: []string{"/bin/sh", "-c", TensorBoardScript},
		Env: append(tensorBoardEnv(job),
			framework.Number("TENSORBOARD_PORT", tensorBoardDefaultPort),
			framework.ReplicaIndex("REPLICA_ID"),
			framework.Text("HOME", "/tmp"), // the user of the workers has none in other images
		),
		Ports: []corev1.ContainerPort{{Name: TensorBoardContainer, ContainerPort: tensorBoardDefaultPort, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
		},
		VolumeMounts:    []corev1.VolumeMount{mount},
		RestartPolicy:   ptr.To(corev1.ContainerRestartPolicyAlways), // a sidecar: it ends with the trainer
		SecurityContext: child.Restricted(),
	})
}

// TensorBoardService is the Service of TensorBoard. Unlike the job's others it has an address of its own, so that it can
// stand behind an Ingress or a route of any kind.
func TensorBoardService(job *mlv1.TrainingJob) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: Meta(job, TensorBoardName(job)),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{mlv1.LabelTrainingJob: job.Name, batchv1.JobCompletionIndexAnnotation: "0"},
			Ports:    servicePorts([]framework.Port{{Name: TensorBoardContainer, Number: tensorBoardDefaultPort}}),
		},
	}
}
