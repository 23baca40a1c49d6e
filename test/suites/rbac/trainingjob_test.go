package rbac_test

import (
	"context"
	"strings"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// children are one object of each kind that belongs to a job named bert, by name.
func children() map[string]client.Object {
	return map[string]client.Object{
		"bert-training":         &batchv1.Job{},
		"bert-headless":         &corev1.Service{},
		"bert-config":           &corev1.ConfigMap{},
		"bert-training/account": &corev1.ServiceAccount{},
		"bert-checkpoints":      &corev1.PersistentVolumeClaim{},
		"bert-training/policy":  &networkingv1.NetworkPolicy{},
	}
}

// eachChild calls a function with one child of each kind.
func (w *world) eachChild(do func(object client.Object, name string)) {
	w.t.Helper()
	for name, object := range children() {
		name, _, _ = strings.Cut(name, "/")
		do(object, name)
	}
}

func ownedCheckpoints(name string) *builders.TrainingJobBuilder {
	return builders.TrainingJob(name).Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Checkpoint.Storage.RetentionPolicy = mlv1.ClaimDelete
		s.Networking.Isolation = mlv1.IsolationJob
	})
}

// resumesFromNobody has the manager look for another TrainingJob.
func resumesFromNobody(w *world) {
	job := w.submit(builders.TrainingJob("bert").Checkpoints().ResumeFrom("gpt"))
	w.awaitReason(job, reasons.ResumeSourceNotFound)
}

func aWorkerFails(w *world) {
	job := w.starts(builders.TrainingJob("bert").Workers(2))
	first := w.workers(job, "")
	w.end(1, w.pods(job)[1])
	second := w.workers(job, first.UID)
	w.run(w.pods(job, first.UID)...)
	w.awaitState(job, mlv1.StateRunning)
	w.end(64, w.pods(job, first.UID)[0])
	w.awaitState(job, mlv1.StateFailed)
	require.NotEqual(w.t, first.UID, second.UID)
	require.Equal(w.t, int32(1), job.Status.RestartCount)
}

// suspendAndResume does so twice: the second time the same event comes again, which is written as a series.
func suspendAndResume(w *world) {
	job := w.starts(builders.TrainingJob("bert"))
	for range 2 {
		workers := w.workers(job, "")
		w.change(job, job.Name, func() { job.Spec.Suspend = ptr.To(true) })
		w.awaitState(job, mlv1.StateSuspended)
		w.change(job, job.Name, func() { job.Spec.Suspend = ptr.To(false) })
		w.run(w.pods(job, workers.UID)...)
		w.awaitState(job, mlv1.StateRunning)
	}
}

func rescale(w *world) {
	job := w.starts(builders.TrainingJob("bert").Workers(1).Elastic(1, 2).Rescale(mlv1.RescaleRestart))
	workers := w.workers(job, "")
	w.change(job, job.Name, func() { job.Spec.NumWorkers = 2 })
	w.run(w.pods(job, workers.UID)...)
	w.awaitState(job, mlv1.StateRunning)
}

func cleanUp(w *world) {
	job := w.completes(ownedCheckpoints("bert").Cleanup(mlv1.CleanupAll))
	for _, child := range []client.Object{
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-training"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-headless"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-config"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-training"}},
	} {
		child.SetNamespace(w.namespace)
		w.awaitEnd(child)
	}
}

func timeToLive(w *world) {
	job := w.submit(builders.TrainingJob("bert").TTL(1))
	w.end(0, w.pods(job)...)
	w.awaitEnd(job)
}

func checkpointsAreKept(w *world) {
	job := w.trains("bert")
	var claim corev1.PersistentVolumeClaim
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "bert-checkpoints"}, &claim))
	require.NoError(w.t, w.Delete(w.t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.awaitEnd(job)
	w.trains("bert")
	uid := claim.UID
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(&claim), &claim))
	require.Equal(w.t, uid, claim.UID)
}

func checkpointsGo(w *world) {
	job := w.completes(ownedCheckpoints("bert"))
	require.NoError(w.t, w.Delete(w.t.Context(), job))
	w.awaitEnd(job)
	w.awaitEnd(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "bert-checkpoints", Namespace: w.namespace}})
}

// namedClaims has a job wait for its claim, and another resume from it.
func namedClaims(w *world) {
	job := w.submit(builders.TrainingJob("bert").Claim("shared"))
	w.awaitReason(job, reasons.ClaimNotFound)
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}))
	w.pods(job)
	w.pods(w.submit(builders.TrainingJob("gpt").Checkpoints().ResumeFrom("pvc://shared/bert")))
}

// whatIsChangedIsPutBack takes the second label from a child of each kind.
func whatIsChangedIsPutBack(w *world) {
	w.starts(ownedCheckpoints("bert"))
	w.eachChild(func(object client.Object, name string) {
		w.change(object, name, func() { delete(object.GetLabels(), "trainingjob") })
		w.awaitChild(object, func() bool { return object.GetLabels()["trainingjob"] == "bert" })
	})
}

// lostLabels takes the label by which the cache finds a child, from one of each kind.
func lostLabels(w *world) {
	w.starts(ownedCheckpoints("bert"))
	w.eachChild(func(object client.Object, name string) {
		w.change(object, name, func() { delete(object.GetLabels(), "training-job") })
		w.awaitChild(object, func() bool { return object.GetLabels()["training-job"] == "bert" })
	})
}

func serviceReplaced(w *world) {
	w.starts(builders.TrainingJob("bert"))
	var service corev1.Service
	w.change(&service, "bert-master", func() { service.Spec.Ports[0].Port = 1 })
	uid := service.UID
	w.awaitChild(&service, func() bool { return service.UID != uid })
}

func foreignChild(w *world) {
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bert-config", Namespace: w.namespace}}
	require.NoError(w.t, w.Create(w.t.Context(), foreign))
	job := w.submit(builders.TrainingJob("bert"))
	w.awaitReason(job, reasons.ObjectConflict)
}

// orphans has the manager end pods that no longer belong to a Job.
func orphans(w *world) {
	job := w.starts(builders.TrainingJob("bert").Workers(2))
	pods := w.pods(job)
	workers := w.workers(job, "")
	require.NoError(w.t, w.Delete(w.t.Context(), workers, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	for _, pod := range pods {
		w.awaitEnd(pod)
	}
	w.run(w.pods(job, workers.UID)...)
	w.awaitState(job, mlv1.StateRunning)
}

func quota(w *world) {
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: w.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
	}))
	w.await("the quota being counted", func(ctx context.Context) (bool, error) {
		var q corev1.ResourceQuota
		err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "none"}, &q)
		return len(q.Status.Hard) > 0, err
	})
	job := w.submit(builders.TrainingJob("bert"))
	w.awaitReason(job, reasons.ResourceQuotaExceeded)
}

func namespaceDeleted(w *world) {
	job := w.starts(builders.TrainingJob("bert").Workers(2).Checkpoints())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	require.NoError(w.t, w.Delete(w.t.Context(), namespace))
	w.awaitEnd(job)
}
