package aijob

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

// Source says how AIJobs are admitted, whose pods get these resources beside their own.
func Source(defaults workerdefaults.Defaults, overheads queueing.Overheads) queueing.Source {
	return queueing.Source{
		Kind: kindAIJob, Object: &aiplatformv1alpha1.AIJob{},
		Job: func(object client.Object) (scheduler.Job, queueing.State) {
			return schedulable(object.(*aiplatformv1alpha1.AIJob), defaults, overheads)
		},
	}
}

// schedulable is what the scheduler must know of a job. The status is the only record of its place: a job with assignments holds
// it, and one whose phase is not Scheduled or Running is giving it back.
func schedulable(
	job *aiplatformv1alpha1.AIJob, defaults workerdefaults.Defaults, overheads queueing.Overheads,
) (scheduler.Job, queueing.State) {
	placement := placementOf(&job.Status)
	state := queueing.Uninvolved
	stopping := job.DeletionTimestamp != nil || ptr.Deref(job.Spec.Cancel, false)
	switch phase := job.Status.Phase; {
	case phase == aiplatformv1alpha1.AIJobScheduled || phase == aiplatformv1alpha1.AIJobRunning:
		state = queueing.Holding
	case len(placement) > 0:
		state, stopping = queueing.Holding, true
	case isWaiting(job) && !stopping && !isHeldBack(&job.Status):
		state = queueing.Waiting
	}
	if state == queueing.Uninvolved {
		return scheduler.Job{}, state
	}
	given := job.Status.DefaultResources
	if state == queueing.Waiting { // as it will be written when the job is admitted
		given = defaults.For(job.Spec.Resources)
	}
	resources := workerdefaults.With(job.Spec.Resources, given)
	pod := corev1.PodSpec{
		Containers:     []corev1.Container{{Resources: resources}},
		InitContainers: podbuild.CountedInitContainers(&job.Spec.Settings, job.Spec.Source, resources),
	}
	if t := job.Spec.PodTemplate; t != nil {
		pod.RuntimeClassName = t.RuntimeClassName
		overheads.AddTo(&pod)
	}
	described := scheduler.Job{
		UID: job.UID, Generation: job.Generation, Kind: kindAIJob, Namespace: job.Namespace, Name: job.Name,
		User:  job.Annotations[aiplatformv1alpha1.AnnotationUser],
		Queue: job.Spec.QueueName, Cluster: job.Spec.ClusterName,
		Priority: ptr.Deref(job.Spec.Priority, 50), Preemptible: ptr.Deref(job.Spec.Preemptible, true),
		QueuedAt: queuedAt(job), Topology: job.Spec.Gang.Topology,
		Groups: []scheduler.Group{{
			Count: int(membersOf(job)), NodeSelector: queueing.Selector(job.Spec.NodeSelector), Tolerations: job.Spec.Tolerations,
			Required: podbuild.RequiredNodes(job.Spec.PodAffinity(), job.Status.VolumeTopology),
			Requests: queueing.RequestsOf(&pod),
		}},
	}
	if state == queueing.Holding {
		described.AdmittedAt = timeOf(job.Status.ScheduledTime, job.CreationTimestamp.Time)
		described.Placement, described.Stopping = placement, stopping
	}
	return described, state
}

// placementOf is the node of each member, in their order.
func placementOf(status *aiplatformv1alpha1.AIJobStatus) []string {
	var nodes []string
	for _, assignment := range status.Assignments {
		nodes = append(nodes, slices.Repeat([]string{assignment.NodeName}, int(assignment.Members))...)
	}
	return nodes
}

// assignmentsOf is a placement as it stands in the status: nodes in the order in which they first occur.
func assignmentsOf(nodes []string) []aiplatformv1alpha1.NodeAssignment {
	var list []aiplatformv1alpha1.NodeAssignment
	at := map[string]int{}
	for _, name := range nodes {
		i, known := at[name]
		if !known {
			i = len(list)
			at[name] = i
			list = append(list, aiplatformv1alpha1.NodeAssignment{NodeName: name})
		}
		list[i].Members++
	}
	return list
}

// queuedAt is since when the job waits.
func queuedAt(job *aiplatformv1alpha1.AIJob) time.Time {
	return timeOf(job.Status.QueuedTime, job.CreationTimestamp.Time)
}

func timeOf(at *metav1.Time, otherwise time.Time) time.Time {
	if at == nil {
		return otherwise
	}
	return at.Time
}
