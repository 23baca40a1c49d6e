package gang

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	// volcanoGroup names the PodGroup of a pod for Volcano.
	volcanoGroup = "scheduling.k8s.io/group-name"
	// volcanoQueue on a TrainingJob, as label or annotation, names its queue in Volcano.
	volcanoQueue = "scheduling.volcano.sh/queue-name"
)

// volcano is the scheduler of the project Volcano.
type volcano struct{}

func (volcano) Kind() (schema.GroupKind, []string) {
	return schema.GroupKind{Group: "scheduling.volcano.sh", Kind: "PodGroup"}, []string{"v1beta1"}
}

func (volcano) Install() string { return "install Volcano" }

func (volcano) SchedulerName() string { return "volcano" }

func (volcano) Join(pod *corev1.PodTemplateSpec, group string) { pod.Annotations[volcanoGroup] = group }

func (volcano) Spec(job *mlv1.TrainingJob, workers int32) map[string]any {
	spec := map[string]any{"minMember": int64(workers), "minResources": minResources(job, workers)}
	if queue := cmp.Or(job.Labels[volcanoQueue], job.Annotations[volcanoQueue]); queue != "" {
		spec["queue"] = queue
	}
	return withPriority(job, spec)
}
