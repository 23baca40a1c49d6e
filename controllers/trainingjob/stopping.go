package trainingjob

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// selfEnd is how long workers that reached their success policy may take to end by themselves, as those of the worker
// contract do, before they are stopped.
const selfEnd = 30 * time.Second

// planEnd decides whether the training is to be ended before its last epoch, and ends it. It returns false when the
// job goes on as usual.
func (p *planner) planEnd() bool {
	met := stoppingCondition(&p.job.Status) // a target that is reached is not lost to a deadline while the workers end
	deadline := p.deadlineOf()
	if (met == nil || met.Reason == reasons.DeadlineExceeded) && deadline != nil && !p.now.Before(*deadline) {
		limit := *p.job.Spec.FailurePolicy.ActiveDeadlineSeconds
		message := fmt.Sprintf("ran longer than activeDeadlineSeconds %d", limit)
		if p.isDone() {
			return false // it was done in time
		}
		if p.stop(reasons.DeadlineExceeded, message) {
			p.fail(reasons.DeadlineExceeded, message)
		}
		return true
	}
	ends := stoppingCondition(&p.status)
	if ends == nil || p.workers != nil && hasSucceeded(p.workers, p.workerPods()) {
		return false
	}
	if p.workers != nil {
		if left := ends.LastTransitionTime.Add(selfEnd).Sub(p.now); left > 0 {
			p.lookAgain(left)
			return false
		}
	}
	reason, message := ends.Reason, ends.Message // the condition changes when it is set
	if p.stop(reason, message) {
		if p.status.StartTime == nil {
			p.status.StartTime = ptr.To(p.job.CreationTimestamp)
		}
		p.end(mlv1.StateCompleted, reasons.ConditionComplete, reason, message)
	}
	return true
}

// stop has the workers take a last checkpoint and end, and returns true once none runs. Their exit codes mean nothing then.
func (p *planner) stop(reason, message string) (stopped bool) {
	if p.stopWorkers() {
		return true
	}
	p.condition(reasons.ConditionStopping, true, reason, message)
	if p.workers != nil {
		p.lookAgain(retryRefused)
	}
	return false
}

// stopWorkers deletes the Job of the workers and returns true once none runs. The Job's own suspension would count the stopped pods as
// failures.
func (p *planner) stopWorkers() (stopped bool) {
	if p.workers != nil {
		if p.workers.DeletionTimestamp == nil {
			p.remove(p.workers)
		}
		return false
	}
	wait := p.lingeringTime()
	if wait > 0 {
		p.lookAgain(wait)
	}
	return wait <= 0
}
