package rbac_test

import (
	"context"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// pooledWorkers has a queue's workers come, be looked at while they do not become ready, and go. There is no job service to ask.
func pooledWorkers(w *world) {
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	queue.Spec.Workers = &aiplatformv1alpha1.WorkerPool{Namespace: w.namespace, MinReplicas: ptr.To[int32](1)}
	require.NoError(w.t, w.Create(w.t.Context(), queue))
	w.t.Cleanup(func() {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.WithoutCancel(w.t.Context()), queue)))
	})
	workers := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: queue.Name + "-workers"}}
	w.awaitChild(workers, func() bool { return workers.Status.Replicas == 1 })
	w.await("the job service to be missed", func(ctx context.Context) (bool, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
			return false, err
		}
		is := meta.FindStatusCondition(queue.Status.Conditions, reasons.ConditionWorkersReady)
		return is != nil && is.Reason == reasons.JobServiceUnreachable, nil
	})
	before := workers.DeepCopy()
	workers.Spec.Replicas = ptr.To[int32](2)
	require.NoError(w.t, w.Patch(w.t.Context(), workers, client.MergeFrom(before)))
	w.awaitChild(workers, func() bool { return *workers.Spec.Replicas == 1 })

	// What others changed is set right with the next change of the queue.
	rights := []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}}
	for _, object := range rights {
		object.SetName(workers.Name)
		require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(object), object))
		before := object.DeepCopyObject().(client.Object)
		object.SetLabels(nil)
		require.NoError(w.t, w.Patch(w.t.Context(), object, client.MergeFrom(before)))
	}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(queue), queue))
	withOne := queue.DeepCopy()
	queue.Spec.Workers.MaxReplicas = ptr.To[int32](7)
	require.NoError(w.t, w.Patch(w.t.Context(), queue, client.MergeFrom(withOne)))
	for _, object := range rights {
		w.await("the labels of "+object.GetName(), func(ctx context.Context) (bool, error) {
			err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
			return len(object.GetLabels()) > 0, err
		})
	}

	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(queue), queue))
	withWorkers := queue.DeepCopy()
	queue.Spec.Workers = nil
	require.NoError(w.t, w.Patch(w.t.Context(), queue, client.MergeFrom(withWorkers)))
	w.awaitEnd(workers)
	w.awaitEnd(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: workers.Name}})
}
