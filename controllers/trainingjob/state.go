package trainingjob

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
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
func (p *planner) condition(kind string, status bool, reason, message string) {
	value := metav1.ConditionFalse
	if status {
		value = metav1.ConditionTrue
	}
	reporting.Set(&p.status.Conditions, p.job.Generation, p.now, kind, value, reason, message)
	// Set twice in one plan, only the last counts.
	if was := meta.FindStatusCondition(p.job.Status.Conditions, kind); was != nil && was.Status == value {
		meta.FindStatusCondition(p.status.Conditions, kind).LastTransitionTime = was.LastTransitionTime
	}
}

// conclude sets a condition to False where it was ever set.
func (p *planner) conclude(kind, reason, message string) {
	if meta.FindStatusCondition(p.status.Conditions, kind) != nil {
		p.condition(kind, false, reason, message)
	}
}

func isFinished(status *mlv1.TrainingJobStatus) bool {
	return status.State == mlv1.StateCompleted || status.State == mlv1.StateFailed
}

// setPending keeps the job Pending and says why.
func (p *planner) setPending(reason, message string) {
	p.enter(mlv1.StatePending, reason)
	p.condition(reasons.ConditionInitialized, false, reason, message)
	p.conclude(reasons.ConditionRunning, reason, message)
	if p.status.Workers != nil {
		p.status.Workers.Active = 0
	}
	if keepsFromStarting(reason) {
		p.condition(reasons.ConditionCheckpointReady, false, reason, message)
		p.lookAgain(15 * time.Second) // claims and jobs of others are not watched for this one
	}
	if reason == reasons.GangNotServed || reason == reasons.KueueNotServed {
		p.condition(reasons.ConditionAdmitted, false, reason, message)
		p.lookAgain(lookForKinds)
	}
}

// setAdmission fills in what holds for every job that may use its resources.
func (p *planner) setAdmission() {
	admitted, reason, message := p.admission()
	if build.QueueName(p.job) != "" {
		admitted, reason, message = p.queueAdmission(&p.status)
	}
	p.condition(reasons.ConditionAdmitted, admitted, reason, message)
	p.readyBefore()
	p.status.ResumeSource = p.resume
	p.status.Workers = cmp.Or(p.status.Workers, &mlv1.WorkersStatus{})
	p.status.Workers.Total = p.job.Spec.NumWorkers
	// Workers that are there keep what they have, and those that have a place what it was given for.
	if (p.workers == nil || p.isOutdated()) && (p.status.Admission == nil || p.status.Admission.AdmittedTime == nil) {
		p.status.DefaultResources = p.settings.DefaultResources.For(p.job.Spec.Resources)
	}
	p.status.Resources = build.Resources(p.job, p.status.Resources)
	p.status.Selector = mlv1.LabelTrainingJob + "=" + p.job.Name
	if h := p.job.Spec.Hyperparameters; h != nil && (p.status.TotalEpochs == 0 || p.job.Status.ObservedGeneration != p.job.Generation) {
		p.status.TotalEpochs = ptr.Deref(h.Epochs, p.status.TotalEpochs)
	}
}

// setInitializing says what the job waits for. A job that restarts stays Restarting until all its workers run.
func (p *planner) setInitializing(reason, message string) {
	state := mlv1.StateInitializing
	if p.status.RestartCount > 0 && p.status.State == mlv1.StateRestarting {
		state = mlv1.StateRestarting
	}
	p.enter(state, reason)
	p.setStarted(false, reason, message)
}

// setStarted says whether the training has what it needs, and runs.
func (p *planner) setStarted(is bool, reason, message string) {
	p.condition(reasons.ConditionInitialized, is, reason, message)
	p.condition(reasons.ConditionRunning, is, reason, message)
}

// setRunning says that the training goes on, be it without some of the workers of an elastic job.
func (p *planner) setRunning(reason, message string) {
	if p.status.StartTime == nil {
		p.status.StartTime = ptr.To(metav1.NewTime(p.now))
	}
	if p.status.Admission != nil && reason == reasons.WorkersRunning {
		p.status.Admission.FailedStarts, p.status.Admission.AvoidedNodes = 0, nil
	}
	p.enter(mlv1.StateRunning, reason)
	p.setStarted(true, reason, message)
	p.conclude(reasons.ConditionRestarting, reason, message)
}

// restart writes the decision to start the whole job again into the status; the workers are replaced only once it is
// there, so that no restart is counted twice or forgotten when the operator stops in between.
func (p *planner) restart(found failure) {
	p.changeUnsettled(func(list *podend.Unsettled) {
		if found.Lost {
			list.Drop()
			return
		}
		list.Note(p.now, found.silent, true)
	})
	p.status.RestartCount++
	if found.Lost {
		p.status.DisruptionCount++
	}
	p.status.LastRestartTime = ptr.To(metav1.NewTime(p.now))
	p.status.Workers = &mlv1.WorkersStatus{Total: p.job.Spec.NumWorkers, Failed: countFailed(p.workerPods())}
	p.setRestarting(found)
}

// setRestarting says what the job is started again for.
func (p *planner) setRestarting(found failure) {
	p.status.FailureReason = found.Message
	message := fmt.Sprintf("restart %d: %s", p.status.RestartCount, found.Message)
	p.enter(mlv1.StateRestarting, found.Reason)
	p.condition(reasons.ConditionRestarting, true, found.Reason, message)
	p.setStarted(false, found.Reason, message)
}

func (p *planner) setStopping() {
	if p.status.State == mlv1.StateSuspended { // suspended again before its resumption was reported
		return
	}
	p.status.Reason = reasons.Suspended
	p.condition(reasons.ConditionSuspended, false, reasons.Suspended, "the workers are being stopped")
}

func (p *planner) setSuspendedFor(reason, message string) {
	p.status.Workers.Active, p.status.Workers.Failed = 0, 0
	p.conclude(reasons.ConditionStopping, reason, message)
	p.enter(mlv1.StateSuspended, reason)
	p.condition(reasons.ConditionSuspended, true, reason, message)
	p.condition(reasons.ConditionRunning, false, reason, message)
	p.condition(reasons.ConditionInitialized, false, reason, message)
	p.conclude(reasons.ConditionRestarting, reason, message)
}

// setResumed says that a job which was suspended is so no longer.
func (p *planner) setResumed() {
	p.conclude(reasons.ConditionSuspended, reasons.Resumed, "spec.suspend is not true")
	if p.status.State == mlv1.StateSuspended {
		p.setInitializing(reasons.WorkersStarting, "the job was resumed")
	}
}

// resumedAt is when the job was last resumed; zero when it never was suspended.
func resumedAt(status *mlv1.TrainingJobStatus) time.Time {
	condition := meta.FindStatusCondition(status.Conditions, reasons.ConditionSuspended)
	if condition == nil || condition.Reason != reasons.Resumed {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

func (p *planner) complete() {
	reason, message := reasons.TrainingCompleted, "all workers ended with exit code 0"
	if ended, ok := p.lastReport(); ok {
		switch ended.Reason {
		case reasons.TargetReached, reasons.EarlyStopped:
			reason, message = ended.Reason, ended.Message
		}
	} else if ends := stoppingCondition(&p.status); ends != nil { // a program that saw it too, and says nothing
		reason, message = ends.Reason, ends.Message
	}
	if p.status.StartTime == nil { // it ended before it was seen running
		p.status.StartTime = ptr.To(p.workers.CreationTimestamp)
	}
	p.status.Workers.Succeeded, p.status.Workers.Failed = p.status.Workers.Total, 0
	p.end(mlv1.StateCompleted, reasons.ConditionComplete, reason, message)
}

func (p *planner) fail(reason, message string) {
	p.status.FailureReason = message
	p.end(mlv1.StateFailed, reasons.ConditionFailed, reason, message)
}

// end puts the job into a final state, which a condition tells too.
func (p *planner) end(state mlv1.State, kind, reason, message string) {
	p.enter(state, reason)
	p.status.UnsettledFailures = nil
	if state == mlv1.StateCompleted {
		p.status.Progress = "100%"
	}
	if p.status.Workers != nil {
		p.status.Workers.Active = 0
	}
	p.condition(kind, true, reason, message)
	p.condition(reasons.ConditionRunning, false, reason, message)
	if meta.FindStatusCondition(p.status.Conditions, reasons.ConditionInitialized) != nil { // whether it was, stays
		p.condition(reasons.ConditionInitialized, meta.IsStatusConditionTrue(p.status.Conditions, reasons.ConditionInitialized), reason, message)
	}
	p.conclude(reasons.ConditionRestarting, reason, message)
	p.conclude(reasons.ConditionStopping, reason, message)
	meta.RemoveStatusCondition(&p.status.Conditions, reasons.ConditionChildrenApplied)
	p.status.CompletionTime = ptr.To(metav1.NewTime(p.now))
	if p.status.StartTime != nil {
		p.status.Duration = max(p.now.Sub(p.status.StartTime.Time), 0).Round(time.Second).String() // the clock may have been set back
	}
	if ttl := p.job.Spec.TTLSecondsAfterFinished; ttl != nil {
		p.lookAgain(time.Duration(*ttl) * time.Second)
	}
}

// lastReport is what replica 0 said at its end; false when it has not ended or said nothing.
func (o *observed) lastReport() (progress.Figures, bool) {
	pod := masterPod(o.workerPods())
	if pod == nil && o.isFinalOfAttempt() {
		pod = o.final
	}
	if pod == nil || workerProgram.Terminated(pod) == nil {
		return progress.Figures{}, false
	}
	return progress.ParseTermination(workerProgram.Terminated(pod).Message)
}

// isFinalOfAttempt says whether the pod that ended last is of the present attempt, or of one that was just stopped.
func (o *observed) isFinalOfAttempt() bool {
	switch {
	case o.final == nil:
		return false
	case o.workers != nil:
		return metav1.IsControlledBy(o.final, o.workers)
	default:
		return o.job.Status.State == mlv1.StateRunning && !o.final.CreationTimestamp.Before(&o.job.CreationTimestamp)
	}
}

// readFigures brings the newest figures into the status: those that replica 0 left at its end, else the last scraped.
func (p *planner) readFigures() {
	if ended, ok := p.lastReport(); ok {
		p.recordFigures(ended, p.now)
		return
	}
	if p.read.Figures != nil && p.status.State == mlv1.StateRunning {
		p.recordFigures(*p.read.Figures, p.read.Time)
	}
}

func (p *planner) recordFigures(figures progress.Figures, at time.Time) {
	s := &p.status
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
	p.reportWorkersCheckpoint(figures.Checkpoint)
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
