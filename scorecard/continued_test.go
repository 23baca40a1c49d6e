package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/checks"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// ended makes the pod of a job's replica that ended with the termination message.
func (b *bench) ended(job, attempt, replica, message string) {
	b.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.namespace, Name: job + "-" + attempt + "-" + replica,
			Labels:      map[string]string{mlv1.LabelTrainingJob: job, mlv1.LabelReplicaID: replica},
			Annotations: map[string]string{mlv1.AnnotationAttempt: attempt},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "worker:1"}}},
	}
	require.NoError(b.t, b.Create(b.t.Context(), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "worker", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
	}}
	require.NoError(b.t, b.Status().Update(b.t.Context(), pod))
}

func TestContinuedFromTheCheckpoint(t *testing.T) {
	b := newBench(t)
	l, err := cluster.Open(b.config, b.bundle, b.namespace)
	require.NoError(t, err)
	l.Context = t.Context()
	judge := func(job string, saved int64) error {
		return l.Run(func(env *cluster.Env) {
			checks.ContinuedFrom(env, &mlv1.TrainingJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: job}},
				&mlv1.CheckpointStatus{Path: "/checkpoint-step-46", Epoch: 2, Step: saved})
		})
	}

	require.ErrorContains(t, judge("gone", 46), "has no pod with the label replica-id=0")

	b.ended("silent", "0", "0", "Killed")
	require.ErrorContains(t, judge("silent", 46), "does not say at which step it continued")

	b.ended("scratch", "0", "0", `{"training_restored_step": 0}`)
	require.ErrorContains(t, judge("scratch", 46), "continued at step 0 although the checkpoint /checkpoint-step-46 holds 46")
	require.Error(t, judge("scratch", 0), "a checkpoint of nothing is none")

	b.ended("earlier", "0", "0", `{"training_restored_step": 23}`)
	require.ErrorContains(t, judge("earlier", 46), "continued at step 23")

	// Only the newest attempt counts.
	b.ended("restarted", "0", "0", `{"training_restored_step": 0}`)
	b.ended("restarted", "1", "0", `{"training_restored_step": 46.0}`)
	b.ended("restarted", "1", "1", `{"training_restored_step": 3}`)
	require.NoError(t, judge("restarted", 46))
}
