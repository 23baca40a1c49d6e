package trainingjob

import (
	"fmt"
	"maps"
	"math"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/progress"
)

var phases = map[mlv1.State]mlv1.Phase{
	mlv1.StatePending: mlv1.PhasePending, mlv1.StateInitializing: mlv1.PhasePending, mlv1.StateSuspended: mlv1.PhasePending,
	mlv1.StateRunning: mlv1.PhaseRunning, mlv1.StateRestarting: mlv1.PhaseRunning,
	mlv1.StateCompleted: mlv1.PhaseSucceeded, mlv1.StateFailed: mlv1.PhaseFailed,
}

// enter puts the status into a state, with the phase that belongs to it.
func (d *desired) enter(state mlv1.State, reason string) {
	d.status.State, d.status.Phase, d.status.Reason = state, phases[state], reason
}

// condition sets a condition. Its transition time changes only with its status.
func (d *desired) condition(o observed, kind string, status bool, reason, message string) {
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: o.job.Generation, LastTransitionTime: metav1.NewTime(o.now),
	})
	// Set twice in one plan, only the last counts.
	if was := meta.FindStatusCondition(o.job.Status.Conditions, kind); was != nil && was.Status == value {
		meta.FindStatusCondition(d.status.Conditions, kind).LastTransitionTime = was.LastTransitionTime
	}
}

// conclude sets a condition to False where it was ever set.
func (d *desired) conclude(o observed, kind, reason, message string) {
	if meta.FindStatusCondition(d.status.Conditions, kind) != nil {
		d.condition(o, kind, false, reason, message)
	}
}

func finished(status *mlv1.TrainingJobStatus) bool {
	return status.State == mlv1.StateCompleted || status.State == mlv1.StateFailed
}

// hold keeps the job Pending and says why.
func hold(o observed, d *desired, reason, message string) {
	d.enter(mlv1.StatePending, reason)
	d.condition(o, mlv1.ConditionInitialized, false, reason, message)
	d.conclude(o, mlv1.ConditionRunning, reason, message)
	if d.status.Workers != nil {
		d.status.Workers.Active = 0
	}
	if holds(reason) {
		d.condition(o, mlv1.ConditionCheckpointReady, false, reason, message)
		d.lookAgain(15 * time.Second) // claims and jobs of others are not watched for this one
	}
	if reason == mlv1.ReasonGangNotServed || reason == mlv1.ReasonKueueNotServed {
		d.condition(o, mlv1.ConditionAdmitted, false, reason, message)
		d.lookAgain(lookForKinds)
	}
}

// admit fills in what holds for every job that may use its resources.
func admit(o observed, d *desired) {
	admitted, reason, message := admittance(o)
	if aiQueue(o.job) != "" {
		admitted, reason, message = ownAdmission(o, &d.status)
	}
	d.condition(o, mlv1.ConditionAdmitted, admitted, reason, message)
	readyBefore(o, d)
	d.status.ResumeSource = o.resume
	workers := o.job.Spec.NumWorkers
	if d.status.Workers == nil {
		d.status.Workers = &mlv1.WorkersStatus{}
	}
	d.status.Workers.Total = workers
	d.status.Resources = resources(o.job, d.status.Resources)
	d.status.Selector = mlv1.LabelTrainingJob + "=" + o.job.Name
	if h := o.job.Spec.Hyperparameters; h != nil && d.status.TotalEpochs == 0 {
		d.status.TotalEpochs = ptr.Deref(h.Epochs, 0)
	}
}

// resources are the sums over all workers, with the utilization that was reported last.
func resources(job *mlv1.TrainingJob, before *mlv1.ResourcesStatus) *mlv1.ResourcesStatus {
	of := workerResources(job)
	sum := &mlv1.ResourcesStatus{Workers: job.Spec.NumWorkers, GPUs: job.Spec.NumWorkers * gpusPerWorker(job)}
	sum.CPU = times(of, corev1.ResourceCPU, job.Spec.NumWorkers)
	sum.Memory = times(of, corev1.ResourceMemory, job.Spec.NumWorkers)
	if before != nil {
		sum.GPUUtilizationPercent = before.GPUUtilizationPercent
	}
	return sum
}

// times is what the workers request together; limits stand for requests that are not set, as for any pod.
func times(of corev1.ResourceRequirements, name corev1.ResourceName, workers int32) *resource.Quantity {
	quantity, ok := of.Requests[name]
	if !ok {
		quantity, ok = of.Limits[name]
	}
	if !ok {
		return nil
	}
	sum := quantity.DeepCopy()
	sum.Mul(int64(workers))
	return &sum
}

// initializing says what the job waits for. A job that restarts stays Restarting until all its workers run.
func initializing(o observed, d *desired, reason, message string) {
	state := mlv1.StateInitializing
	if d.status.RestartCount > 0 && d.status.State == mlv1.StateRestarting {
		state = mlv1.StateRestarting
	}
	d.enter(state, reason)
	d.condition(o, mlv1.ConditionInitialized, false, reason, message)
	d.condition(o, mlv1.ConditionRunning, false, reason, message)
}

func running(o observed, d *desired) {
	if d.status.StartTime == nil {
		d.status.StartTime = ptr.To(metav1.NewTime(o.now))
	}
	message := fmt.Sprintf("all %d workers run", d.status.Workers.Total)
	d.enter(mlv1.StateRunning, mlv1.ReasonWorkersRunning)
	d.condition(o, mlv1.ConditionInitialized, true, mlv1.ReasonWorkersRunning, message)
	d.condition(o, mlv1.ConditionRunning, true, mlv1.ReasonWorkersRunning, message)
	d.conclude(o, mlv1.ConditionRestarting, mlv1.ReasonWorkersRunning, message)
}

// restart writes the decision to start the whole job again into the status; the workers are replaced only once it is
// there, so that no restart is counted twice or forgotten when the operator stops in between.
func restart(o observed, d *desired, found failure) {
	d.status.RestartCount++
	if found.disrupted {
		d.status.DisruptionCount++
	}
	d.status.FailureReason = found.message
	d.status.LastRestartTime = ptr.To(metav1.NewTime(o.now))
	d.status.Workers = &mlv1.WorkersStatus{Total: o.job.Spec.NumWorkers}
	if o.workers != nil {
		d.status.Workers.Failed = countFailed(o.podsOf(o.workers.UID))
	}
	message := fmt.Sprintf("restart %d: %s", d.status.RestartCount, found.message)
	d.enter(mlv1.StateRestarting, found.reason)
	d.condition(o, mlv1.ConditionRestarting, true, found.reason, message)
	d.condition(o, mlv1.ConditionInitialized, false, found.reason, message)
	d.condition(o, mlv1.ConditionRunning, false, found.reason, message)
}

func stoppingWorkers(o observed, d *desired) {
	if d.status.State == mlv1.StateSuspended { // suspended again before its resumption was reported
		return
	}
	d.status.Reason = mlv1.ReasonSuspended
	d.condition(o, mlv1.ConditionSuspended, false, mlv1.ReasonSuspended, "the workers are being stopped")
}

func suspended(o observed, d *desired) {
	d.status.Admission = nil // its place in a queue is for others
	suspendedFor(o, d, mlv1.ReasonSuspended, "spec.suspend is true; no worker runs")
}

func suspendedFor(o observed, d *desired, reason, message string) {
	d.status.Workers.Active, d.status.Workers.Failed = 0, 0
	d.conclude(o, mlv1.ConditionStopping, reason, message)
	d.enter(mlv1.StateSuspended, reason)
	d.condition(o, mlv1.ConditionSuspended, true, reason, message)
	d.condition(o, mlv1.ConditionRunning, false, reason, message)
	d.condition(o, mlv1.ConditionInitialized, false, reason, message)
	d.conclude(o, mlv1.ConditionRestarting, reason, message)
}

// resumed says that a job which was suspended is so no longer.
func resumed(o observed, d *desired) {
	d.conclude(o, mlv1.ConditionSuspended, mlv1.ReasonResumed, "spec.suspend is not true")
	if d.status.State == mlv1.StateSuspended {
		initializing(o, d, mlv1.ReasonWorkersStarting, "the job was resumed")
	}
}

// resumedAt is when the job was last resumed; zero when it never was suspended.
func resumedAt(status *mlv1.TrainingJobStatus) time.Time {
	condition := meta.FindStatusCondition(status.Conditions, mlv1.ConditionSuspended)
	if condition == nil || condition.Reason != mlv1.ReasonResumed {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

func complete(o observed, d *desired) {
	reason, message := mlv1.ReasonTrainingCompleted, "all workers ended with exit code 0"
	if ended, ok := lastReport(o); ok {
		switch ended.Reason {
		case mlv1.ReasonTargetReached, mlv1.ReasonEarlyStopped:
			reason, message = ended.Reason, ended.Message
		}
	} else if ends := stopping(&d.status); ends != nil { // a program that saw it too, and says nothing
		reason, message = ends.Reason, ends.Message
	}
	if d.status.StartTime == nil { // it ended before it was seen running
		d.status.StartTime = ptr.To(o.workers.CreationTimestamp)
	}
	d.status.Progress = "100%"
	d.status.Workers.Active, d.status.Workers.Succeeded, d.status.Workers.Failed = 0, d.status.Workers.Total, 0
	d.end(o, mlv1.StateCompleted, reason)
	d.condition(o, mlv1.ConditionComplete, true, reason, message)
	d.condition(o, mlv1.ConditionRunning, false, reason, message)
	d.conclude(o, mlv1.ConditionRestarting, reason, message)
	d.conclude(o, mlv1.ConditionStopping, reason, message)
}

func fail(o observed, d *desired, reason, message string) {
	d.status.FailureReason = message
	if d.status.Workers != nil {
		d.status.Workers.Active = 0
	}
	d.end(o, mlv1.StateFailed, reason)
	d.condition(o, mlv1.ConditionFailed, true, reason, message)
	d.condition(o, mlv1.ConditionRunning, false, reason, message)
	d.conclude(o, mlv1.ConditionRestarting, reason, message)
	d.conclude(o, mlv1.ConditionStopping, reason, message)
}

func (d *desired) end(o observed, state mlv1.State, reason string) {
	d.enter(state, reason)
	d.status.CompletionTime = ptr.To(metav1.NewTime(o.now))
	if d.status.StartTime != nil {
		d.status.Duration = o.now.Sub(d.status.StartTime.Time).Round(time.Second).String()
	}
	if ttl := o.job.Spec.TTLSecondsAfterFinished; ttl != nil {
		d.lookAgain(time.Duration(*ttl) * time.Second)
	}
}

// lastReport is what replica 0 said at its end; false when it has not ended or said nothing.
func lastReport(o observed) (progress.Figures, bool) {
	if o.workers != nil {
		if pod := masterPod(o.podsOf(o.workers.UID)); pod != nil {
			ended := workerProgram.Terminated(pod)
			if ended == nil {
				return progress.Figures{}, false
			}
			return progress.ParseTermination(ended.Message)
		}
	}
	if !fits(o) {
		return progress.Figures{}, false
	}
	return progress.ParseTermination(o.farewell.message)
}

// fits says whether the last words that were heard are those of the present attempt, or of one that was just stopped.
func fits(o observed) bool {
	switch {
	case o.farewell == nil:
		return false
	case o.workers != nil:
		return o.farewell.owner == o.workers.UID
	default:
		return o.job.Status.State == mlv1.StateRunning && !o.farewell.created.Before(&o.job.CreationTimestamp)
	}
}

// readFigures brings the newest figures into the status: those that replica 0 left at its end, else the last scraped.
func readFigures(o observed, d *desired) {
	if ended, ok := lastReport(o); ok {
		d.report(o, ended, o.now)
		return
	}
	if o.figures != nil && d.status.State == mlv1.StateRunning {
		d.report(o, o.figures.Figures, o.figures.time)
	}
}

func (d *desired) report(o observed, figures progress.Figures, at time.Time) {
	s := &d.status
	if figures.Epoch > 0 {
		s.CurrentEpoch = figures.Epoch
	}
	if figures.Epochs > 0 {
		s.TotalEpochs = figures.Epochs
	}
	if figures.Ratio != nil {
		s.Progress = strconv.Itoa(int(math.Floor(100*min(max(*figures.Ratio, 0), 1)+1e-9))) + "%"
	}
	if figures.GPUUtilizationPercent != nil && s.Resources != nil {
		s.Resources.GPUUtilizationPercent = figures.GPUUtilizationPercent
	}
	if len(figures.Metrics) > 0 && !maps.Equal(s.Metrics, figures.Metrics) {
		s.Metrics, s.MetricsTime = figures.Metrics, ptr.To(metav1.NewTime(at))
	}
	d.reportWorkersCheckpoint(o, figures.Checkpoint)
}

// masterPod is the newest pod of replica 0; nil when there is none. A cache lists pods in any order.
func masterPod(pods []*corev1.Pod) *corev1.Pod {
	var newest *corev1.Pod
	for _, pod := range pods {
		if replicaOf(pod) == "0" && (newest == nil || compareAge(pod, newest) > 0) {
			newest = pod
		}
	}
	return newest
}

// metricsURL is where replica 0 serves its metrics; empty when it does not run or is not to be asked.
func metricsURL(job *mlv1.TrainingJob, pods []*corev1.Pod) string {
	pod := masterPod(pods)
	if pod == nil || pod.Status.Phase != corev1.PodRunning || workerProgram.Terminated(pod) != nil || pod.Status.PodIP == "" || !ptr.Deref(job.Spec.Monitoring.Enabled, true) {
		return ""
	}
	return "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(job.Spec.Monitoring.MetricsPort))) + "/metrics"
}
