package trainingjob

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestDrift(t *testing.T) {
	job := builders.AdvancedTraining(t)
	tests := map[string]struct {
		object  client.Object
		change  func(live client.Object)
		drifted bool
	}{
		"none":                           {object: build.HeadlessService(job), change: func(client.Object) {}},
		"a label of another writer":      {object: build.HeadlessService(job), change: func(o client.Object) { o.GetLabels()["team"] = "a" }},
		"a label is gone":                {object: build.MasterService(job), change: func(o client.Object) { delete(o.GetLabels(), "trainingjob") }, drifted: true},
		"the owner is gone":              {object: build.ConfigMap(job), change: func(o client.Object) { o.SetOwnerReferences(nil) }, drifted: true},
		"a Service's defaulted field":    {object: build.HeadlessService(job), change: func(o client.Object) { o.(*corev1.Service).Spec.SessionAffinity = "None" }},
		"a Service's port":               {object: build.HeadlessService(job), change: func(o client.Object) { o.(*corev1.Service).Spec.Ports[0].Port = 1 }, drifted: true},
		"a Service's selector has less":  {object: build.MasterService(job), change: func(o client.Object) { delete(o.(*corev1.Service).Spec.Selector, "training-job") }, drifted: true},
		"a Service's selector has more":  {object: build.MasterService(job), change: func(o client.Object) { o.(*corev1.Service).Spec.Selector["x"] = "y" }, drifted: true},
		"a setting":                      {object: build.ConfigMap(job), change: func(o client.Object) { o.(*corev1.ConfigMap).Data["model"] = "other" }, drifted: true},
		"a setting of another writer":    {object: build.ConfigMap(job), change: func(o client.Object) { o.(*corev1.ConfigMap).Data["mine"] = "x" }},
		"a Job's parallelism":            {object: build.Workers(job, build.Settings{}, 0), change: func(o client.Object) { *o.(*batchv1.Job).Spec.Parallelism = 0 }, drifted: true},
		"a Job's template, which is set": {object: build.Workers(job, build.Settings{}, 0), change: func(o client.Object) { o.(*batchv1.Job).Spec.Template = corev1.PodTemplateSpec{} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			live := test.object.DeepCopyObject().(client.Object)
			test.change(live)
			assert.Equal(t, test.drifted, child.HasDrifted(test.object, live))
		})
	}
}

func TestTheCacheHoldsOnlyWhatIsRead(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	workers := builders.Workers(job).Obj()
	pod := builders.Pod(workers, 0).Unseen("").Running().Obj()
	want := pod.DeepCopy()
	pod.Annotations["other"] = "x"
	pod.Spec.Containers = []corev1.Container{{Name: "trainer"}}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady})
	pod.Status.ContainerStatuses[0].ImageID = "sha256:1"

	bare, err := keepPods.Pods()(pod)

	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(want, bare))

	full := build.Workers(job, build.Settings{IsolateJobs: true}, 3)
	stripped, err := bareJob(full.DeepCopy())
	require.NoError(t, err)
	assert.Equal(t, int32(3), build.AttemptOf(stripped.(*batchv1.Job)))
	assert.True(t, build.WasIsolated(stripped.(*batchv1.Job)))
	assert.False(t, child.HasDrifted(full, stripped.(*batchv1.Job)), "a bare Job must not look changed")
}
