package child_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

// A backup has what users made. What the operator made of it is made again.
func TestOnlyWhatOutlivesItsOwnerIsBackedUp(t *testing.T) {
	c := newCluster(t)
	owned := c.child(c.owner)
	shared := map[string]string{"job": "bert"}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "worker", Image: "worker:1"}},
	}}
	template.Labels = shared
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: template}}
	job.Name, job.Namespace, job.OwnerReferences, job.Labels = "workers", c.namespace, owned.OwnerReferences, shared
	kept := &corev1.ConfigMap{}
	kept.Name, kept.Namespace = "kept", c.namespace
	claim := c.wanted()["PersistentVolumeClaim"]
	for _, object := range []client.Object{owned, job, kept, claim} {
		_, err := c.Writer.Create(t.Context(), c.owner, object)
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	}
	assert.Equal(t, "true", owned.Labels[child.LabelNotInBackup])
	assert.Equal(t, "true", job.Labels[child.LabelNotInBackup])
	assert.Equal(t, "true", job.Spec.Template.Labels[child.LabelNotInBackup], "nor are its pods")
	assert.Empty(t, kept.Labels)
	assert.NotContains(t, claim.GetLabels(), child.LabelNotInBackup, "it has the checkpoints")
	assert.Equal(t, map[string]string{"job": "bert"}, shared)
}

func TestAChildIsNotLabelledLater(t *testing.T) {
	c := newCluster(t)
	want := c.wanted()["ConfigMap"]
	before := want.DeepCopyObject().(client.Object)
	require.NoError(t, c.WithWatch.Create(t.Context(), before))
	assert.False(t, child.HasDrifted(want, before), "those that were made without the label stay as they are")
	require.NoError(t, c.ensure(t, want))
	assert.NotContains(t, c.live(t, want).GetLabels(), child.LabelNotInBackup)
}
