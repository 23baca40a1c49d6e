package trainingjob

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/admission"
	"github.com/dcnlab/spot-training-operator/internal/scheduler"
)

// Priorities in an AIJobQueue.
const (
	highestPriority = 100
	defaultPriority = 50
)

// bindPatience is how long the workers of a job may find no room on the nodes that the queue assigned before it gives its
// place back: another scheduler's pod was faster, or the node is not what it was.
const bindPatience = 30 * time.Second

// aiQueue is the AIJobQueue that admits the job; empty when none does.
func aiQueue(job *mlv1.TrainingJob) string {
	if s := job.Spec.Scheduling; s != nil {
		return s.QueueName
	}
	return ""
}

// Source says how TrainingJobs are admitted. The function tells the value of a PriorityClass; false when there is none of the
// name.
func Source(settings Settings, priorityOf func(class string) (int32, bool)) admission.Source {
	return admission.Source{
		Kind: kindTrainingJob, Object: &mlv1.TrainingJob{}, List: &mlv1.TrainingJobList{},
		Job: func(object client.Object) (scheduler.Job, admission.State) {
			job, ok := object.(*mlv1.TrainingJob)
			if !ok || admissionState(job) == admission.Uninvolved {
				return scheduler.Job{}, admission.Uninvolved
			}
			return schedulable(job, settings, priorityOf), admissionState(job)
		},
	}
}

// admissionState says what a job has to do with admission. The status is the only record of it: a job waits once it says so, and
// not while something else keeps it from being started.
func admissionState(job *mlv1.TrainingJob) admission.State {
	of := job.Status.Admission
	switch {
	case aiQueue(job) == "" || of == nil || job.DeletionTimestamp != nil || finished(&job.Status):
		return admission.Uninvolved
	case of.AdmittedTime != nil:
		return admission.Holding
	case ptr.Deref(job.Spec.Suspend, false):
		return admission.Uninvolved
	}
	return admission.Waiting
}

func schedulable(job *mlv1.TrainingJob, settings Settings, priorityOf func(string) (int32, bool)) scheduler.Job {
	of := job.Status.Admission
	described := scheduler.Job{
		UID: job.UID, Kind: kindTrainingJob, Namespace: job.Namespace, Name: job.Name, Queue: aiQueue(job),
		User:     job.Annotations[aiplatformv1alpha1.AnnotationUser],
		Priority: defaultPriority, Preemptible: checkpointsEnabled(job), QueuedAt: job.CreationTimestamp.Time,
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
	// All workers are made from one template, and the agent beside them requests something as well.
	pod := buildWorkers(job, settings, 0).Spec.Template.Spec
	group := scheduler.Group{
		Count: members, Requests: admission.RequestsOf(&pod), NodeSelector: pod.NodeSelector, Tolerations: pod.Tolerations,
	}
	if a := job.Spec.Scheduling.Affinity; a != nil && a.NodeAffinity != nil {
		group.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	described.Groups = []scheduler.Group{group}
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
	for name, count := range workers {
		all = append(all, mlv1.NodeAssignment{NodeName: name, Workers: count})
	}
	slices.SortFunc(all, func(a, b mlv1.NodeAssignment) int { return cmp.Compare(a.NodeName, b.NodeName) })
	return all
}

// observeAdmission asks what the last cycle decided on the job.
func (r *Reconciler) observeAdmission(o *observed) {
	if r.Admission != nil && admissionState(o.job) != admission.Uninvolved {
		o.decision, _ = r.Admission.Decision(o.job.UID)
	}
}

// hasPlace says whether the queue has given the job a place that it keeps.
func hasPlace(status *mlv1.TrainingJobStatus) bool {
	return status.Admission != nil && status.Admission.AdmittedTime != nil
}

// withdrawn says whether a job that ran waits for its queue again.
func withdrawn(o observed) bool {
	return aiQueue(o.job) != "" && o.workers == nil && !hasPlace(&o.job.Status) && o.job.Status.Admission != nil &&
		meta.IsStatusConditionTrue(o.job.Status.Conditions, mlv1.ConditionSuspended)
}

// planAdmission keeps a job with an AIJobQueue from being started before it has its place, and has it give it back. It returns
// true when there is nothing else to plan. Whatever it decides stands in the status before anything is done about it.
func planAdmission(o observed, d *desired) (done bool) {
	if aiQueue(o.job) == "" {
		return false
	}
	was := o.job.Status.Admission
	switch {
	case was == nil && o.workers != nil:
		return false // it runs since before its queue was served
	case was == nil:
		return queueUp(o, d, &mlv1.AdmissionStatus{QueuedTime: ptr.To(metav1.NewTime(o.now))})
	case was.AdmittedTime == nil && o.workers != nil:
		d.remove(o.workers) // only a hand from outside makes that so
		return queueUp(o, d, was.DeepCopy())
	case was.AdmittedTime == nil && o.decision.Admitted != nil && len(o.decision.Admitted.Nodes) == int(o.job.Spec.NumWorkers):
		return takePlace(o, d)
	case was.AdmittedTime == nil:
		return queueUp(o, d, was.DeepCopy())
	case was.Releasing != "":
		return release(o, d)
	}
	why, left := mustRelease(o)
	if left > 0 {
		d.lookAgain(left)
	}
	if why != "" {
		d.status.Admission.Releasing = why
		if o.decision.Preempted != nil {
			d.status.Admission.PreemptionCount++
		}
		d.condition(o, mlv1.ConditionSuspended, false, mlv1.ReasonEvictedByQueue, why)
		d.lookAgain(time.Millisecond)
		return true
	}
	return false
}

// takePlace writes the decision down. Once it is there the workers are made.
func takePlace(o observed, d *desired) bool {
	of := d.status.Admission
	of.AdmittedTime, of.Assignments = ptr.To(metav1.NewTime(o.now)), assignments(o.decision.Admitted.Nodes)
	admit(o, d)
	resumed(o, d)
	if d.status.State == mlv1.StatePending || d.status.State == "" {
		initializing(o, d, mlv1.ReasonWorkersStarting, "the queue admitted the job")
	}
	d.lookAgain(time.Millisecond)
	return true
}

// queueUp has the job say what it waits for.
func queueUp(o observed, d *desired, of *mlv1.AdmissionStatus) bool {
	d.status.Admission = of
	admit(o, d)
	_, reason, message := ownAdmission(o, &d.status)
	if d.status.StartTime == nil && d.status.RestartCount == 0 && !withdrawn(o) {
		hold(o, d, reason, message)
		return true
	}
	suspendedFor(o, d, mlv1.ReasonEvictedByQueue, "the job gave its place back, and waits for another: "+message)
	return true
}

// mustRelease says why a job must give its place back; empty when it may keep it, and after which time to look again.
func mustRelease(o observed) (why string, again time.Duration) {
	if by := o.decision.Preempted; by != nil {
		return fmt.Sprintf("%s %s/%s of priority %d takes its place", by.Kind, by.Namespace, by.Name, by.Priority), 0
	}
	if o.workers == nil {
		status, places := &o.job.Status, len(placement(o.job.Status.Admission))
		if places != int(o.job.Spec.NumWorkers) {
			return fmt.Sprintf("spec.numWorkers is %d, but the queue admitted %d workers", o.job.Spec.NumWorkers, places), 0
		}
		if _, lost := losses[status.Reason]; lost && status.State == mlv1.StateRestarting {
			return "what it had on a node was lost, and may not be there any more: " + status.FailureReason, 0
		}
		return "", 0
	}
	for _, pod := range o.podsOf(o.workers.UID) {
		reason, message := stuck(pod)
		if reason != mlv1.ReasonUnschedulable || pod.DeletionTimestamp != nil {
			continue
		}
		left := refusedSince(pod).Add(bindPatience).Sub(o.now)
		if left <= 0 {
			return fmt.Sprintf("a worker found no room on the nodes that the queue assigned for %s: %s", bindPatience, message), 0
		}
		if again == 0 || left < again {
			again = left
		}
	}
	return "", again
}

// refusedSince is since when the scheduler finds no node for a pod; zero when it does not say so.
func refusedSince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// twoQueues says that a job names a queue of Kueue and one of the operator; empty when it does not.
func twoQueues(job *mlv1.TrainingJob) (reason, message string) {
	if aiQueue(job) == "" || queueName(job) == "" {
		return "", ""
	}
	return mlv1.ReasonInvalidSpec, fmt.Sprintf("spec.scheduling.queueName: names AIJobQueue %s, but the label %s names LocalQueue %s of Kueue "+
		"as well: create the job with only one of the two", aiQueue(job), kueueQueue, queueName(job))
}

// release stops the workers, which save a checkpoint as when the job is suspended, and queues the job again once none runs.
func release(o observed, d *desired) bool {
	admit(o, d)
	why := o.job.Status.Admission.Releasing
	if o.workers != nil && o.workers.DeletionTimestamp == nil && succeeded(o.workers, o.podsOf(o.workers.UID)) {
		complete(o, d) // before it could be stopped
		return true
	}
	if o.workers != nil {
		d.remove(o.workers)
		return true
	}
	if left := lingering(o, d); left > 0 {
		d.lookAgain(left)
		return true
	}
	d.status.Admission = &mlv1.AdmissionStatus{
		QueuedTime: ptr.To(metav1.NewTime(o.now)), PreemptionCount: o.job.Status.Admission.PreemptionCount,
	}
	admit(o, d)
	suspendedFor(o, d, mlv1.ReasonEvictedByQueue, "the job gave its place back, and waits for another: "+why)
	return true
}

// ownAdmission says what became of a job's wish for a place in its AIJobQueue.
func ownAdmission(o observed, status *mlv1.TrainingJobStatus) (admitted bool, reason, message string) {
	queue := aiQueue(o.job)
	switch of := status.Admission; {
	case of == nil && o.workers == nil && ptr.Deref(o.job.Spec.Suspend, false):
		return false, mlv1.ReasonSuspended, fmt.Sprintf("asks AIJobQueue %s for a place once spec.suspend is false", queue)
	case of == nil && o.workers != nil:
		return true, mlv1.ReasonAdmittedUnqueued, fmt.Sprintf("the job runs since before AIJobQueue %s was served", queue)
	case of != nil && of.AdmittedTime != nil && of.Releasing != "":
		return false, mlv1.ReasonEvictedByQueue, of.Releasing
	case of != nil && of.AdmittedTime != nil:
		return true, mlv1.ReasonAdmittedByQueue, fmt.Sprintf("AIJobQueue %s gave the %d workers their place on %s", queue,
			len(placement(of)), nodeNames(of.Assignments))
	}
	if w := o.decision.Wait; w != nil {
		message := fmt.Sprintf("waits at place %d of AIJobQueue %s: %s", w.Position, queue, w.Message)
		return false, w.Reason, message + roomToCome(o, w.Reason)
	}
	was, told := o.job.Status.Admission, meta.FindStatusCondition(o.job.Status.Conditions, mlv1.ConditionAdmitted)
	if was != nil && was.AdmittedTime == nil && told != nil && told.Status == metav1.ConditionFalse {
		return false, told.Reason, told.Message // as after a start of the manager, until there is a decision again
	}
	return false, mlv1.ReasonQueued, fmt.Sprintf("waits for AIJobQueue %s to admit it", queue)
}

// nodeNames are the first few nodes.
func nodeNames(of []mlv1.NodeAssignment) string {
	const few = 3
	names := ""
	for i, on := range of {
		if i == few {
			return names + fmt.Sprintf(" and %d more nodes", len(of)-few)
		}
		if i > 0 {
			names += ", "
		}
		names += on.NodeName
	}
	return names
}

// placeWorkers binds the pods to the set of nodes on which the job has its place. What the spec requires of nodes holds beside it.
func placeWorkers(job *mlv1.TrainingJob, pod *corev1.PodSpec) {
	if !hasPlace(&job.Status) || aiQueue(job) == "" {
		return
	}
	affinity := pod.Affinity.DeepCopy()
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := []corev1.NodeSelectorTerm{{}}
	if r := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		required = r.NodeSelectorTerms
	}
	var terms []corev1.NodeSelectorTerm
	for _, on := range job.Status.Admission.Assignments {
		for _, term := range required {
			bound := *term.DeepCopy()
			bound.MatchFields = append(bound.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{on.NodeName},
			})
			terms = append(terms, bound)
		}
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	pod.Affinity = affinity
}
