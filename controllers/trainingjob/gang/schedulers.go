package gang

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// Scheduler is a scheduler that knows the pods of a gang by an object, its PodGroup.
type Scheduler struct {
	// Kind of its PodGroup.
	Kind schema.GroupKind
	// Versions of the kind that are understood, newest first.
	Versions []string

	// install says what a cluster lacks that does not serve the kind.
	install string
	// schedulerName of its pods; empty for the default scheduler.
	schedulerName string
	// join makes a pod a member of a PodGroup.
	join func(pod *corev1.PodTemplateSpec, group string)
	// spec is the spec of the PodGroup of so many workers.
	spec func(job *mlv1.TrainingJob, workers int32) map[string]any
}

// volcanoQueue on a TrainingJob, as label or annotation, names its queue in Volcano.
const volcanoQueue = "scheduling.volcano.sh/queue-name"

var schedulers = map[string]Scheduler{
	// The scheduler of the project Volcano.
	Volcano: {
		Kind: schema.GroupKind{Group: "scheduling.volcano.sh", Kind: "PodGroup"}, Versions: []string{"v1beta1"},
		install: "install Volcano", schedulerName: "volcano",
		join: func(pod *corev1.PodTemplateSpec, group string) {
			pod.Annotations["scheduling.k8s.io/group-name"] = group
		},
		spec: func(job *mlv1.TrainingJob, workers int32) map[string]any {
			spec := members(job, workers)
			if queue := cmp.Or(job.Labels[volcanoQueue], job.Annotations[volcanoQueue]); queue != "" {
				spec["queue"] = queue
			}
			return withPriority(job, spec)
		},
	},
	// The plugin of that name of the project scheduler-plugins. Its PodGroup has no priority: that of the pods counts.
	Coscheduling: {
		Kind: schema.GroupKind{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}, Versions: []string{"v1alpha1"},
		install: "install the coscheduling of scheduler-plugins", schedulerName: "scheduler-plugins-scheduler",
		join: func(pod *corev1.PodTemplateSpec, group string) { pod.Labels["scheduling.x-k8s.io/pod-group"] = group },
		spec: members,
	},
	// kube-scheduler with gang scheduling (KEP-4671).
	Kubernetes: {
		Kind:     schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"},
		Versions: []string{"v1", "v1beta1", "v1alpha3", "v1alpha2"},
		install:  "enable the feature gates GenericWorkload and GangScheduling and serve the alpha versions of scheduling.k8s.io",
		join: func(pod *corev1.PodTemplateSpec, group string) {
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
		},
		spec: func(job *mlv1.TrainingJob, workers int32) map[string]any {
			return withPriority(job, map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(workers)}}})
		},
	},
}
