package rbac_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// gang brings a job through a change of its size, which finds its PodGroup there, to its end, with which that goes.
func (w *world) gang(scheduler string) {
	job := w.starts(builders.TrainingJob("bert").Workers(2).Elastic(2, 3).Rescale(mlv1.RescaleRestart).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{SchedulerName: scheduler}
	}))
	workers := w.workers(job, "")
	w.change(job, job.Name, func() { job.Spec.NumWorkers = 3 })
	pods := w.pods(job, workers.UID)
	w.run(pods...)
	w.awaitState(job, mlv1.StateRunning)
	w.end(0, pods...)
	w.awaitState(job, mlv1.StateCompleted)
}

// waitsForKueue has the test play Kueue, an edit reach the Job that it holds, and a worker fail, at which the manager asks whether Kueue stopped it.
func waitsForKueue(w *world) {
	job := w.submit(builders.TrainingJob("bert").Labels(map[string]string{"kueue.x-k8s.io/queue-name": "team"}))
	w.awaitReason(job, reasons.Queued)
	w.change(job, job.Name, func() { job.Spec.Scheduling = &mlv1.Scheduling{NodeSelector: map[string]string{"zone": "a"}} })
	var workers batchv1.Job
	w.await("the edit in the Job", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: job.Name + "-training"}, &workers)
		return workers.Spec.Template.Spec.NodeSelector["zone"] == "a", err
	})
	w.change(&workers, job.Name+"-training", func() { workers.Spec.Suspend = ptr.To(false) })
	pods := w.pods(job)
	w.run(pods...)
	w.awaitState(job, mlv1.StateRunning)
	w.end(1, pods...)
	w.awaitJob(job, "restarted", func(status *mlv1.TrainingJobStatus) bool { return status.RestartCount == 1 })
}

// waitsForItsQueue has a job wait for an AIJobQueue that does not exist, then for one that does not select its namespace, then for one
// that admits nothing.
func waitsForItsQueue(w *world) {
	job := w.submit(builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{QueueName: w.namespace}
	}))
	w.awaitReason(job, reasons.QueueNotFound)
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	queue.Spec.Suspend = ptr.To(true)
	queue.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": w.namespace}}
	require.NoError(w.t, w.Create(w.t.Context(), queue))
	w.awaitReason(job, reasons.NamespaceNotSelected)
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"team":%q}}}`, w.namespace)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	require.NoError(w.t, w.Patch(w.t.Context(), namespace, client.RawPatch(types.MergePatchType, label)))
	w.awaitReason(job, reasons.QueueSuspended)
	w.await("the depth of the queue", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(queue), queue)
		return err == nil && queue.Status.Depth == 1, err
	})
}

// volumesInAQueue has jobs wait that can run only where the volume of their claim is, and where their StorageClass makes volumes.
func volumesInAQueue(w *world) {
	zone := corev1.TopologySelectorLabelRequirement{Key: corev1.LabelTopologyZone, Values: []string{"z"}}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Provisioner: "example.com/none",
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{zone}}},
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zone.Key, Operator: corev1.NodeSelectorOpIn, Values: zone.Values}},
			}}}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, VolumeName: volume.Name, StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
		},
	}
	for _, object := range []client.Object{class, volume, claim} {
		require.NoError(w.t, w.Create(w.t.Context(), object))
	}
	queued := func(s *mlv1.TrainingJobSpec) { s.Scheduling = &mlv1.Scheduling{QueueName: w.namespace} }
	for _, job := range []*builders.TrainingJobBuilder{
		builders.TrainingJob("bert").Claim(claim.Name).Spec(queued),
		builders.TrainingJob("gpt").Checkpoints().Spec(queued).Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Storage.StorageClassName = &class.Name }),
	} {
		w.awaitJob(w.submit(job), "limited to a zone", func(status *mlv1.TrainingJobStatus) bool {
			return status.Admission != nil && len(status.Admission.VolumeTopology) == 1
		})
	}
}

// aNodeIsLost has one worker lose another whose node does not exist.
func aNodeIsLost(w *world) {
	job := w.starts(builders.TrainingJob("bert").Workers(2))
	pods := w.pods(job)
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "vanished"}}
	require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), pods[1], binding))
	w.end(75, pods[0])
	w.awaitJob(job, "restarted", func(status *mlv1.TrainingJobStatus) bool { return status.RestartCount == 1 })
	require.Equal(w.t, reasons.NodeLost, job.Status.LastFailure.Reason)
}

// aWorkerStays has the manager report an elastic worker as failed that no kubelet ends.
func aWorkerStays(w *world) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "dead-"}}
	require.NoError(w.t, w.Create(w.t.Context(), node))
	w.t.Cleanup(func() { require.NoError(w.t, w.Delete(context.WithoutCancel(w.t.Context()), node)) })
	job := w.starts(builders.TrainingJob("bert").Workers(2).Elastic(1, 2))
	var stays *corev1.Pod
	for _, pod := range w.pods(job) {
		if pod.Annotations[batchv1.JobCompletionIndexAnnotation] == "1" {
			stays = pod
		}
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), stays, binding))
	require.NoError(w.t, w.Delete(w.t.Context(), stays, client.GracePeriodSeconds(1)))
	w.awaitEnd(stays)
	w.run(w.pods(job)...)
	w.awaitReason(job, reasons.WorkersRunning)
	require.Zero(w.t, job.Status.RestartCount)
}

func quotaOfPods(w *world) {
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: w.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}},
	}))
	w.await("the quota being counted", func(ctx context.Context) (bool, error) {
		var q corev1.ResourceQuota
		err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "one"}, &q)
		return len(q.Status.Hard) > 0, err
	})
	job := w.submit(builders.TrainingJob("bert").Workers(2))
	w.awaitReason(job, reasons.ResourceQuotaExceeded)
}
