package trainingjob

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// selfEnd is how long workers that reached their success policy may take to end by themselves, as those of the worker
// contract do, before they are stopped.
const selfEnd = 30 * time.Second

// planEnd decides whether the training is to be ended before its last epoch, and ends it. It returns false when the
// job goes on as usual.
func planEnd(o observed, d *desired) bool {
	met := stopping(&o.job.Status) // a target that is reached is not lost to a deadline while the workers end
	if (met == nil || met.Reason == mlv1.ReasonDeadlineExceeded) && pastDeadline(o, d) {
		limit := *o.job.Spec.FailurePolicy.ActiveDeadlineSeconds
		message := fmt.Sprintf("ran longer than activeDeadlineSeconds %d", limit)
		if o.workers != nil && o.workers.DeletionTimestamp == nil && succeeded(o.workers, o.podsOf(o.workers.UID)) {
			return false // it was done in time
		}
		if stop(o, d, mlv1.ReasonDeadlineExceeded, message) {
			fail(o, d, mlv1.ReasonDeadlineExceeded, message)
		}
		return true
	}
	ends := stopping(&d.status)
	if ends == nil || o.workers != nil && succeeded(o.workers, o.podsOf(o.workers.UID)) {
		return false
	}
	if o.workers != nil {
		if left := ends.LastTransitionTime.Add(selfEnd).Sub(o.now); left > 0 {
			d.lookAgain(left)
			return false
		}
	}
	reason, message := ends.Reason, ends.Message // the condition changes when it is set
	if stop(o, d, reason, message) {
		end(o, d, reason, message)
	}
	return true
}

// stop has the workers take a last checkpoint and end, by deleting their Job, and returns true once none runs. Their
// exit codes mean nothing then.
func stop(o observed, d *desired, reason, message string) (stopped bool) {
	if o.workers != nil {
		d.condition(o, mlv1.ConditionStopping, true, reason, message)
		if o.workers.DeletionTimestamp == nil {
			d.remove(o.workers)
		}
		d.lookAgain(retryRefused)
		return false
	}
	if wait := lingering(o, d); wait > 0 {
		d.condition(o, mlv1.ConditionStopping, true, reason, message)
		d.lookAgain(wait)
		return false
	}
	return true
}

// end completes a job whose workers were stopped because its success policy was met.
func end(o observed, d *desired, reason, message string) {
	if d.status.StartTime == nil {
		d.status.StartTime = ptr.To(o.job.CreationTimestamp)
	}
	d.status.Progress = "100%"
	d.status.Workers.Active = 0
	d.end(o, mlv1.StateCompleted, reason)
	d.condition(o, mlv1.ConditionComplete, true, reason, message)
	d.condition(o, mlv1.ConditionRunning, false, reason, message)
	d.conclude(o, mlv1.ConditionRestarting, reason, message)
	d.conclude(o, mlv1.ConditionStopping, reason, message)
}
