package trainingjob

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// seen is an object as the cache holds it.
func seen(t *testing.T, object client.Object, version string) client.Object {
	t.Helper()
	object.SetResourceVersion(version)
	for kind, options := range CachedObjects() {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) && options.Transform != nil {
			bare, err := options.Transform(object)
			require.NoError(t, err)
			return bare.(client.Object)
		}
	}
	return object
}

func TestOnlyVisibleChangesOfPodsAndJobsCount(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"training-job": "bert"}},
			Status: corev1.PodStatus{Phase: corev1.PodPending}}
		change(p)
		return p
	}
	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
		change(j)
		return j
	}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: kind, Status: status}} }
	}
	for name, test := range map[string]struct {
		object  client.Object
		visible bool
	}{
		"a pod is seen again":              {pod(func(*corev1.Pod) {}), false},
		"a pod gets its node":              {pod(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), false},
		"a pod is scheduled":               {pod(condition(corev1.PodScheduled, corev1.ConditionTrue)), false},
		"a pod cannot be scheduled":        {pod(condition(corev1.PodScheduled, corev1.ConditionFalse)), true},
		"a pod has its sandbox":            {pod(condition("PodReadyToStartContainers", corev1.ConditionTrue)), false},
		"a pod is ready":                   {pod(condition(corev1.PodReady, corev1.ConditionTrue)), true},
		"a pod runs":                       {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), true},
		"a pod loses a finalizer":          {pod(func(p *corev1.Pod) { p.Finalizers = []string{"f"} }), false},
		"a pod gets its label":             {pod(func(p *corev1.Pod) { p.Labels["replica-id"] = "0" }), true},
		"a pod is deleted":                 {pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), true},
		"a Job counts its pods":            {job(func(j *batchv1.Job) { j.Status.Active = 4 }), false},
		"a Job has failed":                 {job(func(j *batchv1.Job) { j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed}} }), true},
		"a ConfigMap, which is kept fully": {&corev1.ConfigMap{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var before client.Object
			switch test.object.(type) {
			case *corev1.Pod:
				before = pod(func(*corev1.Pod) {})
			case *batchv1.Job:
				before = job(func(*batchv1.Job) {})
			default:
				before = &corev1.ConfigMap{}
			}
			update := event.UpdateEvent{ObjectOld: seen(t, before, "1"), ObjectNew: seen(t, test.object, "2")}
			assert.Equal(t, test.visible, visibleChange().Update(update))
		})
	}
}
