package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// kubernetes is kube-scheduler with gang scheduling (KEP-4671).
type kubernetes struct{}

func (kubernetes) Kind() (schema.GroupKind, []string) {
	return schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"}, []string{"v1", "v1beta1", "v1alpha3", "v1alpha2"}
}

func (kubernetes) Install() string {
	return "enable the feature gates GenericWorkload and GangScheduling and serve the alpha versions of scheduling.k8s.io"
}

func (kubernetes) SchedulerName() string { return "" }

func (kubernetes) Join(pod *corev1.PodTemplateSpec, group string) {
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
}

func (kubernetes) Spec(job *mlv1.TrainingJob, workers int32) map[string]any {
	return withPriority(job, map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(workers)}}})
}
