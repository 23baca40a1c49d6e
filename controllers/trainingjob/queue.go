package trainingjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// Priorities in an AIJobQueue.
const (
	highestPriority = 100
	defaultPriority = 50
)

// Source says how TrainingJobs are admitted. The function tells the value of a PriorityClass; false when there is none of the
// name.
func Source(settings build.Settings, priorityOf func(class string) (int32, bool), overheads queueing.Overheads) queueing.Source {
	return queueing.Source{
		Kind: build.Kind, Object: &mlv1.TrainingJob{},
		Job: func(object client.Object) (scheduler.Job, queueing.State) {
			job, ok := object.(*mlv1.TrainingJob)
			if !ok || admissionState(job) == queueing.Uninvolved {
				return scheduler.Job{}, queueing.Uninvolved
			}
			return schedulable(job, settings, priorityOf, overheads), admissionState(job)
		},
	}
}

// admissionState says what a job has to do with admission. The status is the only record of it: a job waits once it says so, and
// not while something else keeps it from being started.
func admissionState(job *mlv1.TrainingJob) queueing.State {
	of := job.Status.Admission
	switch {
	case build.QueueName(job) == "" || of == nil || job.IsManagedElsewhere() || job.DeletionTimestamp != nil || isFinished(&job.Status):
		return queueing.Uninvolved
	case of.AdmittedTime != nil:
		return queueing.Holding
	case ptr.Deref(job.Spec.Suspend, false), of.RetryTime != nil:
		return queueing.Uninvolved
	}
	return queueing.Waiting
}

func schedulable(
	job *mlv1.TrainingJob, settings build.Settings, priorityOf func(string) (int32, bool), overheads queueing.Overheads,
) scheduler.Job {
	of := job.Status.Admission
	described := scheduler.Job{
		UID: job.UID, Generation: job.Generation, Kind: build.Kind, Namespace: job.Namespace, Name: job.Name, Queue: build.QueueName(job),
		User:     job.Annotations[aiplatformv1alpha1.AnnotationUser],
		Priority: defaultPriority, Preemptible: build.CheckpointsEnabled(job), QueuedAt: job.CreationTimestamp.Time,
	}
	if class := job.Spec.Scheduling.Priority; class != "" {
		if value, ok := priorityOf(class); ok {
			described.Priority = min(max(value, 0), highestPriority)
		}
	}
	if of.QueuedTime != nil {
		described.QueuedAt = of.QueuedTime.Time
	}
	members := int(job.Spec.NumWorkers)
	if of.AdmittedTime != nil {
		described.AdmittedAt, described.Placement = of.AdmittedTime.Time, placement(of)
		described.Stopping = of.Releasing != "" || ptr.Deref(job.Spec.Suspend, false)
		members = len(described.Placement)
	}
	// All workers are made from one template; the checkpoint sidecar requests resources as well.
	pod := build.Workers(job, settings, 0).Spec.Template.Spec
	overheads.AddTo(&pod)
	described.Groups = []scheduler.Group{{
		Count: members, Requests: queueing.RequestsOf(&pod), NodeSelector: pod.NodeSelector, Tolerations: pod.Tolerations, Required: requiredOf(job),
	}}
	return described
}

// placement is the node of each worker.
func placement(of *mlv1.AdmissionStatus) []string {
	var nodes []string
	for _, on := range of.Assignments {
		nodes = append(nodes, slices.Repeat([]string{on.NodeName}, int(on.Workers))...)
	}
	return nodes
}

func assignments(nodes []string) []mlv1.NodeAssignment {
	workers := map[string]int32{}
	for _, name := range nodes {
		workers[name]++
	}
	var all []mlv1.NodeAssignment
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		all = append(all, mlv1.NodeAssignment{NodeName: name, Workers: workers[name]})
	}
	return all
}

// isAwaitingReadmission says whether a job that ran waits for its queue again.
func (o *observed) isAwaitingReadmission() bool {
	return build.QueueName(o.job) != "" && o.workers == nil && !build.IsAdmitted(&o.job.Status) && o.job.Status.Admission != nil &&
		meta.IsStatusConditionTrue(o.job.Status.Conditions, reasons.ConditionSuspended)
}

// planAdmission keeps a job with an AIJobQueue from being started before it is admitted, and evicts it. It returns true when there is
// nothing else to plan. Every decision is in the status before it is carried out.
func (p *planner) planAdmission() (done bool) {
	if build.QueueName(p.job) == "" {
		return false
	}
	was := p.job.Status.Admission
	switch {
	case was == nil && p.workers != nil:
		return false // it runs since before its queue was served
	case was == nil:
		return p.waitInQueue(&mlv1.AdmissionStatus{QueuedTime: ptr.To(metav1.NewTime(p.now))})
	case was.AdmittedTime == nil && p.workers != nil:
		p.remove(p.workers) // the status was changed manually
		return p.waitInQueue(was.DeepCopy())
	case was.AdmittedTime == nil && p.suits(p.decision.Admitted):
		return p.takeAdmission()
	case was.AdmittedTime == nil:
		if place := p.decision.Admitted; place != nil && !place.Of(p.job.Generation) {
			p.lookAgain(queueing.StaleDecision)
		}
		return p.waitInQueue(was.DeepCopy())
	case was.Releasing != "":
		return p.releaseAdmission()
	}
	if why := p.findEviction(); why != nil {
		p.evict(why)
		return true
	}
	return false
}

// suits says whether a place that the queue has for the job is what it needs now: its volumes may have been bound, and its spec changed
// meanwhile.
func (p *planner) suits(place *scheduler.Admission) bool {
	return place != nil && place.Of(p.job.Generation) && len(place.Nodes) == int(p.job.Spec.NumWorkers) &&
		equality.Semantic.DeepEqual(p.job.Status.Admission.VolumeTopology, p.volumeTopology())
}

// takeAdmission writes the decision down. The workers are created once it is in the status.
func (p *planner) takeAdmission() bool {
	of := p.status.Admission
	of.AdmittedTime, of.Assignments = ptr.To(metav1.NewTime(p.now)), assignments(p.decision.Admitted.Nodes)
	p.setAdmission()
	p.setResumed()
	if p.status.State == mlv1.StatePending || p.status.State == "" {
		p.setInitializing(reasons.WorkersStarting, "admitted by the queue")
	}
	p.lookAgain(time.Millisecond)
	return true
}

// waitInQueue says what the job waits for.
func (p *planner) waitInQueue(of *mlv1.AdmissionStatus) bool {
	p.status.Admission = of
	of.VolumeTopology = p.volumeTopology()
	p.endPauses()
	p.setAdmission()
	_, reason, message := p.queueAdmission(&p.status)
	if p.status.StartTime == nil && p.status.RestartCount == 0 && !p.isAwaitingReadmission() {
		p.setPending(reason, message)
		return true
	}
	evicted := reasons.EvictedByQueue
	if was := reporting.Reason(p.job.Status.Conditions, reasons.ConditionSuspended); was == reasons.Preempted {
		evicted = was
	}
	if of.RetryTime != nil {
		p.setSuspendedFor(reason, message)
		return true
	}
	p.setSuspendedFor(evicted, "evicted from the queue; waiting for readmission: "+message)
	return true
}

// queueAdmission says whether the AIJobQueue of a job has admitted it.
func (o *observed) queueAdmission(status *mlv1.TrainingJobStatus) (admitted bool, reason, message string) {
	queue := build.QueueName(o.job)
	switch of := status.Admission; {
	case of == nil && o.workers == nil && ptr.Deref(o.job.Spec.Suspend, false):
		return false, reasons.Suspended, fmt.Sprintf("queued in AIJobQueue %s once spec.suspend is false", queue)
	case of == nil && o.workers != nil:
		return true, reasons.AdmittedUnqueued, fmt.Sprintf("the job runs since before AIJobQueue %s was served", queue)
	case of != nil && of.AdmittedTime != nil && of.Releasing != "":
		return false, o.evictionReason(of.Releasing), of.Releasing
	case of != nil && of.AdmittedTime != nil:
		return true, reasons.AdmittedByQueue, fmt.Sprintf("admitted by AIJobQueue %s: %d workers on %s", queue,
			len(placement(of)), nodeNames(of.Assignments))
	}
	if w := o.decision.Wait; w != nil {
		message := fmt.Sprintf("position %d in AIJobQueue %s: %s", w.Position, queue, w.Message)
		if w.Position == 0 {
			message = fmt.Sprintf("AIJobQueue %s: %s", queue, w.Message)
		}
		if w.Reason == reasons.InsufficientCapacity {
			message += describeRequired(status.Admission)
		}
		if build.SpotName(o.job) != "" && w.Reason == reasons.InsufficientCapacity {
			_, _, capacity := o.spotCapacity()
			message += "; " + capacity
		}
		return false, w.Reason, message
	}
	was, told := o.job.Status.Admission, o.lastAdmission()
	paused := status.Admission != nil && status.Admission.RetryTime != nil
	if told != nil && (paused || was != nil && was.AdmittedTime == nil && was.RetryTime == nil) {
		return false, told.Reason, told.Message // as after a start of the manager, until there is a decision again
	}
	return false, reasons.Queued, fmt.Sprintf("waiting for AIJobQueue %s to admit it", queue)
}

// few is how many nodes a message names.
const few = 3

// nodeNames are the first few nodes.
func nodeNames(of []mlv1.NodeAssignment) string {
	var names []string
	for _, on := range of[:min(len(of), few)] {
		names = append(names, on.NodeName)
	}
	text := strings.Join(names, ", ")
	if len(of) > few {
		text += fmt.Sprintf(" and %d more nodes", len(of)-few)
	}
	return text
}
