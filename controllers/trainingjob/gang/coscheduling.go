package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// coschedulingGroup names the PodGroup of a pod for scheduler-plugins.
const coschedulingGroup = "scheduling.x-k8s.io/pod-group"

// coscheduling is the plugin of that name of the project scheduler-plugins.
type coscheduling struct{}

func (coscheduling) Kind() (schema.GroupKind, []string) {
	return schema.GroupKind{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}, []string{"v1alpha1"}
}

func (coscheduling) Install() string { return "install the coscheduling of scheduler-plugins" }

func (coscheduling) SchedulerName() string { return "scheduler-plugins-scheduler" }

func (coscheduling) Join(pod *corev1.PodTemplateSpec, group string) {
	pod.Labels[coschedulingGroup] = group
}

// Spec has no priority: that of the pods counts.
func (coscheduling) Spec(job *mlv1.TrainingJob, workers int32) map[string]any {
	return map[string]any{"minMember": int64(workers), "minResources": minResources(job, workers)}
}
