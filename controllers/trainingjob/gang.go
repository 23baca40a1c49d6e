package trainingjob

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// The schedulers that start the workers of a job together, as they stand in the annotation AnnotationGangScheduler.
const (
	gangVolcano      = "volcano"
	gangCoscheduling = "coscheduling"
	gangKubernetes   = "kubernetes"
	gangNone         = "none"
)

// schedulerGangs are the gang schedulers that spec.scheduling.schedulerName alone means.
var schedulerGangs = map[string]string{
	"volcano": gangVolcano, "scheduler-plugins-scheduler": gangCoscheduling, "default-scheduler": gangKubernetes, "": gangKubernetes,
}

// gangSchedulers are the names of the schedulers of pods whose job names only its gang scheduler.
var gangSchedulers = map[string]string{gangVolcano: "volcano", gangCoscheduling: "scheduler-plugins-scheduler"}

// podGroups are the kinds of object by which gang schedulers know the pods of a gang, newest version first.
var podGroups = map[string]struct {
	kind     schema.GroupKind
	versions []string
	install  string // what the cluster lacks when it does not serve the kind
}{
	gangVolcano: {schema.GroupKind{Group: "scheduling.volcano.sh", Kind: "PodGroup"}, []string{"v1beta1"}, "install Volcano"},
	gangCoscheduling: {
		schema.GroupKind{Group: "scheduling.x-k8s.io", Kind: "PodGroup"}, []string{"v1alpha1"}, "install the coscheduling of scheduler-plugins",
	},
	gangKubernetes: {
		schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"}, []string{"v1", "v1beta1", "v1alpha3", "v1alpha2"},
		"enable the feature gates GenericWorkload and GangScheduling and serve the alpha versions of scheduling.k8s.io",
	},
}

const (
	// volcanoGroup names the PodGroup of a pod for Volcano.
	volcanoGroup = "scheduling.k8s.io/group-name"
	// volcanoQueue on a TrainingJob, as label or annotation, names its queue in Volcano.
	volcanoQueue = "scheduling.volcano.sh/queue-name"
	// coschedulingGroup names the PodGroup of a pod for scheduler-plugins.
	coschedulingGroup = "scheduling.x-k8s.io/pod-group"
)

// gang is who starts the workers of a job together.
type gang struct {
	// scheduler is one of the constants; empty when the job asks for no gang, or nobody serves it.
	scheduler string
	// version of the scheduler's PodGroup that the cluster serves; empty when it serves none.
	version string
	// named says that the job names the scheduler: it must not start without.
	named bool
}

// wantsGang says whether the workers of a job are to start together.
func wantsGang(job *mlv1.TrainingJob) bool {
	if s := job.Spec.Scheduling; s != nil && s.Gang != nil {
		return *s.Gang
	}
	return job.Spec.NumWorkers > 1
}

// gangScheduler is the scheduler that a job's spec means, and whether it names it. The one of Kubernetes is used where it
// is served, without being named.
func gangScheduler(job *mlv1.TrainingJob) (scheduler string, named bool) {
	if !wantsGang(job) {
		return "", false
	}
	if name, ok := job.Annotations[mlv1.AnnotationGangScheduler]; ok {
		if name == gangNone {
			return "", false
		}
		return name, true
	}
	name := ""
	if job.Spec.Scheduling != nil {
		name = job.Spec.Scheduling.SchedulerName
	}
	scheduler = schedulerGangs[name]
	return scheduler, scheduler != "" && scheduler != gangKubernetes
}

// gangObstacle says why a job that names its gang scheduler cannot be started; empty when it can.
func gangObstacle(o observed) (reason, message string) {
	if !o.gang.named || o.gang.version != "" {
		return "", ""
	}
	known, ok := podGroups[o.gang.scheduler]
	if !ok {
		return mlv1.ReasonGangNotServed, fmt.Sprintf("annotation %s: %q is none of volcano, coscheduling, kubernetes and none: correct it",
			mlv1.AnnotationGangScheduler, o.gang.scheduler)
	}
	return mlv1.ReasonGangNotServed, fmt.Sprintf(
		"the workers are to be started together by %s, but the cluster does not serve %s: %s, or set spec.scheduling.gang to false",
		o.gang.scheduler, known.kind, known.install)
}

// joinGang makes the pods of a Job members of the job's gang.
func joinGang(o observed, workers *batchv1.Job) {
	if o.gang.version == "" {
		return
	}
	workers.Annotations[mlv1.AnnotationGangScheduler] = o.gang.scheduler
	template, name := &workers.Spec.Template, workersName(o.job)
	if template.Spec.SchedulerName == "" {
		template.Spec.SchedulerName = gangSchedulers[o.gang.scheduler]
	}
	switch o.gang.scheduler {
	case gangVolcano:
		template.Annotations[volcanoGroup] = name
	case gangCoscheduling:
		template.Labels[coschedulingGroup] = name
	case gangKubernetes:
		template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(name)}
	}
}

// gangObjects are the objects that the scheduler of the job's gang wants to see before the pods.
func gangObjects(o observed) []client.Object {
	if o.gang.version == "" {
		return nil
	}
	group := groupOf(o.job, o.gang)
	group.SetLabels(labels(o.job))
	group.SetOwnerReferences(child(o.job, "").OwnerReferences)
	workers, spec := int64(gangSize(o)), map[string]any{}
	priority := ""
	if s := o.job.Spec.Scheduling; s != nil {
		priority = s.Priority
	}
	switch o.gang.scheduler {
	case gangVolcano:
		spec["minMember"], spec["minResources"] = workers, minResources(o.job, gangSize(o))
		if queue := either(o.job, volcanoQueue); queue != "" {
			spec["queue"] = queue
		}
	case gangCoscheduling:
		spec["minMember"], spec["minResources"] = workers, minResources(o.job, gangSize(o))
		priority = "" // its PodGroup has none: the pods' counts
	case gangKubernetes:
		spec["schedulingPolicy"] = map[string]any{"gang": map[string]any{"minCount": workers}}
	}
	if priority != "" {
		spec["priorityClassName"] = priority
	}
	group.Object["spec"] = spec
	return []client.Object{group}
}

// gangSize is how many workers must start together: of those that can come one by one, the least that can train.
func gangSize(o observed) int32 {
	if o.workers != nil && resizable(o.workers) || o.workers == nil && resizesInPlace(o.job, o.settings) {
		return o.job.Spec.Elastic.MinWorkers
	}
	return o.job.Spec.NumWorkers
}

// groupOf is the PodGroup of a job, without its contents.
func groupOf(job *mlv1.TrainingJob, of gang) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	group.SetGroupVersionKind(podGroups[of.scheduler].kind.WithVersion(of.version))
	group.SetNamespace(job.Namespace)
	group.SetName(workersName(job))
	return group
}

// minResources are the requests of so many workers together.
func minResources(job *mlv1.TrainingJob, workers int32) map[string]any {
	of, sum := workerResources(job), map[string]any{}
	for _, list := range []corev1.ResourceList{of.Limits, of.Requests} { // limits stand for requests that are not set
		for name := range list {
			sum[string(name)] = times(of, name, workers).String()
		}
	}
	return sum
}

// either is the value of a label or, without it, of an annotation of the job.
func either(job *mlv1.TrainingJob, name string) string {
	if value := job.Labels[name]; value != "" {
		return value
	}
	return job.Annotations[name]
}

// releaseGang gives back what the scheduler holds for the gang of a job that no longer runs.
func releaseGang(o observed, d *desired) {
	of := o.gang
	if o.workers != nil {
		of.scheduler = o.workers.Annotations[mlv1.AnnotationGangScheduler]
	}
	if of.version != "" && of.scheduler != "" && o.job.Status.State != mlv1.StateSuspended {
		d.delete = append(d.delete, groupOf(o.job, of))
	}
}

// admittance says what became of the job's wish for resources.
func admittance(o observed) (admitted bool, reason, message string) {
	scheduler := o.gang.scheduler
	if o.workers != nil {
		scheduler = o.workers.Annotations[mlv1.AnnotationGangScheduler]
	} else if o.gang.version == "" {
		scheduler = ""
	}
	queue := queueName(o.job)
	switch {
	case queue != "" && (o.workers == nil || heldByQueue(o.workers)):
		return false, mlv1.ReasonQueued, fmt.Sprintf("waits for Kueue to admit it through LocalQueue %s", queue)
	case queue != "":
		return true, mlv1.ReasonAdmittedByQueue, fmt.Sprintf("Kueue admitted it through LocalQueue %s", queue)
	case scheduler != "":
		return true, mlv1.ReasonGangScheduled, fmt.Sprintf("%s starts the %d workers together", scheduler, o.job.Spec.NumWorkers)
	case wantsGang(o.job):
		return true, mlv1.ReasonAdmittedUnqueued, fmt.Sprintf("the job asks for no queue and is admitted at once; no gang scheduler is named, "+
			"so that some of its %d workers may start and wait for the others", o.job.Spec.NumWorkers)
	}
	return true, mlv1.ReasonAdmittedUnqueued, "the job asks for no queue and is admitted at once"
}

// sameGroup says whether a PodGroup has the contents that it should have. Defaults that the API added do not count.
func sameGroup(want, is *unstructured.Unstructured) bool {
	return contains(want.Object["spec"], is.Object["spec"])
}

func contains(want, is any) bool {
	switch w := want.(type) {
	case map[string]any:
		i, ok := is.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range w {
			if !contains(value, i[key]) {
				return false
			}
		}
		return true
	case []any:
		i, ok := is.([]any)
		return ok && slices.EqualFunc(w, i, contains)
	}
	return fmt.Sprint(want) == fmt.Sprint(is)
}
