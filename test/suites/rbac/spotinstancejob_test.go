package rbac_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// redundantJob has a replica preempted twice, so that a checkpoint is pruned, its node vanish, and its Job lose its labels.
func redundantJob(w *world) {
	w.ordinaryNode(w.namespace + "-a")
	w.ordinaryNode(w.namespace + "-b")
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "push", Namespace: w.namespace}, Data: map[string][]byte{".dockerconfigjson": []byte("{}")},
	}))
	job := builders.SpotInstanceJob("bert").Namespace(w.namespace).Replicas(1).On("nowhere").Checkpoints(time.Hour).
		Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
			s.CheckpointConfig.Retention = 1
			s.CheckpointConfig.CheckpointRepoCredentialRef = &spotv1alpha1.SecretReference{Name: "push"}
		}).ToCreate()
	require.NoError(w.t, w.Create(w.t.Context(), job))
	for attempt, on := range []string{"-a", "-b", "-gone"} {
		pod := w.replicaPod("bert-0", attempt)
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: w.namespace + on}}
		require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), pod, binding))
		require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod))
		if attempt < 2 {
			w.run(pod)
			w.preempt(pod)
		}
	}
	// The node of the third attempt has never been: the manager expels its pod, and makes the fourth.
	w.replicaPod("bert-0", 3)

	labelled := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "bert-0-r3", Namespace: w.namespace}}
	w.awaitSpotJob(job, "of its fourth attempt", func(s *spotv1alpha1.SpotInstanceJobStatus) bool {
		return len(s.JobStatuses) == 1 && s.JobStatuses[0].Name == labelled.Name
	})
	require.NoError(w.t, w.Patch(w.t.Context(), labelled, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"training.dcnlab.com/spot-instance-job":null}}}`))))
	w.awaitChild(labelled, func() bool { return labelled.Labels[spotv1alpha1.LabelSpotInstanceJob] == "bert" })
}

// strangersReplica has a Job of the name of a replica's have another owner.
func strangersReplica(w *world) {
	job := builders.SpotInstanceJob("bert").Namespace(w.namespace).Replicas(1).ToCreate()
	stranger := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "bert-0", Namespace: w.namespace}, Spec: *job.Spec.JobTemplate.Spec.DeepCopy()}
	require.NoError(w.t, w.Create(w.t.Context(), stranger))
	require.NoError(w.t, w.Create(w.t.Context(), job))
	w.awaitSpotJob(job, "in conflict", func(s *spotv1alpha1.SpotInstanceJobStatus) bool {
		for _, condition := range s.Conditions {
			if condition.Reason == reasons.ObjectConflict {
				return true
			}
		}
		return false
	})
}

// ordinaryNode makes a node that answers.
func (w *world) ordinaryNode(name string) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(w.t, w.Create(w.t.Context(), node))
	w.t.Cleanup(func() {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.WithoutCancel(w.t.Context()), node)))
	})
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	require.NoError(w.t, w.Status().Patch(w.t.Context(), node, client.MergeFrom(before)))
}

// replicaPod waits for the pod of an attempt.
func (w *world) replicaPod(name string, attempt int) *corev1.Pod {
	w.t.Helper()
	if attempt > 0 {
		name = fmt.Sprintf("%s-r%d", name, attempt)
	}
	var pods corev1.PodList
	w.await("the pod of "+name, func(ctx context.Context) (bool, error) {
		err := w.List(ctx, &pods, client.InNamespace(w.namespace), client.MatchingLabels{"batch.kubernetes.io/job-name": name})
		return len(pods.Items) == 1, err
	})
	return &pods.Items[0]
}

// preempt takes the node of a pod back. The test plays the checkpoint agent and the kubelet.
func (w *world) preempt(pod *corev1.Pod) {
	w.t.Helper()
	notice := nodenotice.Notice{Node: pod.Spec.NodeName, Source: nodenotice.MetadataServer, Time: time.Now()}
	require.NoError(w.t, nodenotice.Mark(w.t.Context(), w.Client, pod.Spec.NodeName, notice))
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: checkpointbackup.GroupKind.Group, Version: "v1", Kind: checkpointbackup.GroupKind.Kind + "List"})
	w.await("the request for a checkpoint of pod "+pod.Name, func(ctx context.Context) (bool, error) {
		if err := w.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			return false, err
		}
		for i := range list.Items {
			backup := checkpointbackup.Decode(&list.Items[i])
			if backup.Spec.Pod.Name != pod.Name {
				continue
			}
			status := checkpointbackup.Status{Phase: checkpointbackup.Completed, Completed: time.Now(), Images: backup.Spec.Containers}
			list.Items[i].Object["status"] = checkpointbackup.EncodeStatus(status)
			return true, w.Status().Update(ctx, &list.Items[i])
		}
		return false, nil
	})
	w.await("the end of pod "+pod.Name, func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.DeletionTimestamp != nil {
			err = w.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
		return client.IgnoreNotFound(err) == nil && err != nil, client.IgnoreNotFound(err)
	})
}

// awaitSpotJob waits until a job is as it should be, and reads it.
func (w *world) awaitSpotJob(job *spotv1alpha1.SpotInstanceJob, what string, is func(*spotv1alpha1.SpotInstanceJobStatus) bool) {
	w.t.Helper()
	w.await("the job being "+what, func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil && is(&job.Status), err
	})
}
