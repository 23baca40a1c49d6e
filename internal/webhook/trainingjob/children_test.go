package trainingjob

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// childrenOf is what the webhook reads in the children of a job, as the controller makes them. The tests in
// test/suites/webhook have the controller itself make them.
func childrenOf(job *mlv1.TrainingJob) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + name}
	}
	worker := corev1.Container{Name: "trainer", Env: append([]corev1.EnvVar{{Name: "RANK"}}, job.Spec.Env...)}
	if job.Spec.Resources != nil {
		worker.Resources = *job.Spec.Resources.DeepCopy()
	}
	device := func(name corev1.ResourceName, count int64) {
		if worker.Resources.Limits == nil {
			worker.Resources.Limits = corev1.ResourceList{}
		}
		worker.Resources.Limits[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	if gpus := ptr.Deref(job.Spec.GPUsPerWorker, 1); gpus > 0 {
		device("nvidia.com/gpu", int64(gpus))
	}
	if ptr.Deref(job.Spec.Networking.RDMAEnabled, false) {
		device("rdma/hca", 1)
	}
	workers := &batchv1.Job{ObjectMeta: meta("-training"), Spec: batchv1.JobSpec{
		Parallelism: ptr.To(job.Spec.NumWorkers),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			ServiceAccountName: job.Spec.ServiceAccountName, Containers: []corev1.Container{worker},
		}},
	}}
	pod := &workers.Spec.Template.Spec
	list := []client.Object{workers,
		&corev1.Service{ObjectMeta: meta("-headless")}, &corev1.Service{ObjectMeta: meta("-master")}, &corev1.ConfigMap{ObjectMeta: meta("-config")}}
	if pod.ServiceAccountName == "" {
		pod.ServiceAccountName = job.Name + "-training"
		list = append(list, &corev1.ServiceAccount{ObjectMeta: meta("-training")})
	}
	if s := job.Spec.Scheduling; s != nil {
		pod.PriorityClassName = s.Priority
	}
	if c := job.Spec.Checkpoint; c != nil {
		name := c.Storage.ClaimName
		if name == "" {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("-checkpoints")}
			claim.Spec.StorageClassName = c.Storage.StorageClassName
			claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("10Gi")}
			list, name = append(list, claim), claim.Name
		}
		pod.Volumes = append(pod.Volumes, volume(name))
		if c.ResumeFrom == "pvc://old/run" {
			pod.Volumes = append(pod.Volumes, volume("old"))
		}
	}
	return list
}

func volume(claim string) corev1.Volume {
	return corev1.Volume{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}
