// Package gang knows the schedulers that start the workers of a TrainingJob together: a table of them, and what each needs.
package gang

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
)

// Names of the schedulers, as they stand in the annotation mlv1.AnnotationGangScheduler.
const (
	Volcano      = "volcano"
	Coscheduling = "coscheduling"
	Kubernetes   = "kubernetes"
	none         = "none"
)

// byName are the gang schedulers that spec.scheduling.schedulerName alone selects.
var byName = map[string]string{
	"volcano": Volcano, "scheduler-plugins-scheduler": Coscheduling, "default-scheduler": Kubernetes, "": Kubernetes,
}

// For returns a scheduler by its name; false when this version does not know it.
func For(name string) (Scheduler, bool) {
	known, ok := schedulers[name]
	return known, ok
}

// IsWanted says whether the workers of a job must start together.
func IsWanted(job *mlv1.TrainingJob) bool {
	if s := job.Spec.Scheduling; s != nil && s.Gang != nil {
		return *s.Gang
	}
	return job.Spec.NumWorkers > 1
}

// SchedulerOf is the name of the scheduler that a job's spec selects, and whether it names it: then it must not start without it. The one
// of Kubernetes is used where it is served, without being named.
func SchedulerOf(job *mlv1.TrainingJob) (name string, named bool) {
	if !IsWanted(job) {
		return "", false
	}
	if name, ok := job.Annotations[mlv1.AnnotationGangScheduler]; ok {
		if name == none {
			return "", false
		}
		return name, true
	}
	selected := byName[ptr.Deref(job.Spec.Scheduling, mlv1.Scheduling{}).SchedulerName]
	return selected, selected != "" && selected != Kubernetes
}

// NotServed says why a job whose scheduler the cluster does not serve cannot be started.
func NotServed(name string) string {
	scheduler, ok := schedulers[name]
	if !ok {
		return fmt.Sprintf("annotation %s: %q is none of volcano, coscheduling, kubernetes and none: correct it", mlv1.AnnotationGangScheduler, name)
	}
	return fmt.Sprintf("the workers must be started together by %s, but the cluster does not serve %s: %s, or set spec.scheduling.gang to false",
		name, scheduler.Kind, scheduler.install)
}

// Join makes the pods of a Job members of the job's gang.
func Join(workers *batchv1.Job, name string) {
	workers.Annotations[mlv1.AnnotationGangScheduler] = name
	template, scheduler := &workers.Spec.Template, schedulers[name]
	if template.Spec.SchedulerName == "" {
		template.Spec.SchedulerName = scheduler.schedulerName
	}
	scheduler.join(template, workers.Name)
}

// Group is the PodGroup of a job, without its contents.
func Group(job *mlv1.TrainingJob, name, version string) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	group.SetGroupVersionKind(schedulers[name].Kind.WithVersion(version))
	group.SetNamespace(job.Namespace)
	group.SetName(build.WorkersName(job))
	return group
}

// FullGroup is the PodGroup of a job with so many workers.
func FullGroup(job *mlv1.TrainingJob, name, version string, workers int32) *unstructured.Unstructured {
	group := Group(job, name, version)
	group.SetLabels(build.Labels(job))
	group.SetOwnerReferences(build.Meta(job, "").OwnerReferences)
	group.Object["spec"] = schedulers[name].spec(job, workers)
	return group
}

// withPriority adds the PriorityClass of a job to the spec of its PodGroup.
func withPriority(job *mlv1.TrainingJob, spec map[string]any) map[string]any {
	if s := job.Spec.Scheduling; s != nil && s.Priority != "" {
		spec["priorityClassName"] = s.Priority
	}
	return spec
}

// members are the number of workers, and what they request together.
func members(job *mlv1.TrainingJob, workers int32) map[string]any {
	sum := map[string]any{}
	for name, quantity := range build.Requests(job, workers) {
		sum[string(name)] = quantity.String()
	}
	return map[string]any{"minMember": int64(workers), "minResources": sum}
}
