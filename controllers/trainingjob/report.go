package trainingjob

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// minorDelay is how long a change of counts or wording alone waits for others to be written with.
const minorDelay = 5 * time.Second

// report writes the status when it changed, and tells of the transitions by events and metrics. It returns when to
// come back for a change that was put off; 0 when there is none.
func (r *Reconciler) report(ctx context.Context, o observed, status *mlv1.TrainingJobStatus) (time.Duration, error) {
	key := client.ObjectKeyFromObject(o.job)
	if equality.Semantic.DeepEqual(&o.job.Status, status) {
		r.minor.settle(key)
		return 0, nil
	}
	if onlyMinor(&o.job.Status, status) {
		if wait := r.minor.wait(key, o.now); wait > 0 {
			return wait, nil
		}
	}
	next := o.job.DeepCopy()
	next.Status = *status
	// The lock makes sure that a decision is made from the newest status: restarts must not be counted twice.
	lock := client.MergeFromWithOptions(o.job, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, next, lock, fieldOwner); err != nil {
		return 0, fmt.Errorf("write the status: %w", err)
	}
	r.minor.settle(key)
	if !o.priceUnread {
		r.ledger.settle(key, status.Cost, o.now)
	}
	r.tell(o.job, status)
	return 0, nil
}

// onlyMinor says whether two statuses differ in counts and wording alone.
func onlyMinor(before, after *mlv1.TrainingJobStatus) bool {
	return equality.Semantic.DeepEqual(essence(before), essence(after))
}

// essence is a status without what may be written late: running counts, and the wording of conditions.
func essence(status *mlv1.TrainingJobStatus) *mlv1.TrainingJobStatus {
	bare := status.DeepCopy()
	bare.Cost = nil
	if bare.Workers != nil {
		bare.Workers.Active, bare.Workers.Succeeded, bare.Workers.Failed = 0, 0, 0
	}
	for i := range bare.Conditions {
		bare.Conditions[i].Message = ""
	}
	return bare
}

// tell emits the events and counts of what changed from the job's old status to the new one.
func (r *Reconciler) tell(job *mlv1.TrainingJob, after *mlv1.TrainingJobStatus) {
	before := &job.Status
	event := func(kind, reason, action, note string) {
		r.Recorder.Eventf(job, nil, kind, reason, action, "%s", note)
	}
	if len(before.Conditions) == 0 {
		r.Metrics.Created(job.Namespace)
		if dividesGPUs(job) {
			event(corev1.EventTypeWarning, "GPUsDivided", "Create", fmt.Sprintf(
				"spec.resources asks for numWorkers x gpusPerWorker GPUs, which was taken for the whole job: each worker gets %d", gpusPerWorker(job)))
		}
	}
	r.observeWaits(job, after)
	for _, n := range checkpointNews(before, after) {
		event(n.kind, n.reason, "Checkpoint", n.note)
	}
	for _, n := range preemptionNews(before, after) {
		event(n.kind, n.reason, "Preempt", n.note)
	}
	if ends := stopping(after); ends != nil && stopping(before) == nil {
		event(corev1.EventTypeNormal, "Stopping", "Stop", fmt.Sprintf("%s: %s", ends.Reason, ends.Message))
	}
	tellElastic(before, after, event)
	if before.State == after.State && before.Reason == after.Reason && before.RestartCount == after.RestartCount {
		return
	}
	switch after.State {
	case mlv1.StateRunning:
		if before.State != mlv1.StateRunning {
			event(corev1.EventTypeNormal, "Running", "Run", fmt.Sprintf("all %d workers run", after.Workers.Total))
		}
	case mlv1.StateRestarting:
		if before.RestartCount != after.RestartCount {
			event(corev1.EventTypeWarning, "Restarting", "Restart", fmt.Sprintf("restart %d: %s", after.RestartCount, after.FailureReason))
		} else if after.Reason != mlv1.ReasonWorkersStarting {
			event(corev1.EventTypeWarning, after.Reason, "Start", waitingMessage(after))
		}
	case mlv1.StateCompleted:
		r.Metrics.Completed(job.Namespace)
		event(corev1.EventTypeNormal, "Completed", "Complete", fmt.Sprintf("%s after %s", after.Reason, after.Duration))
	case mlv1.StateFailed:
		r.Metrics.Failed(job.Namespace, after.Reason)
		event(corev1.EventTypeWarning, "Failed", "Fail", fmt.Sprintf("%s: %s", after.Reason, after.FailureReason))
	case mlv1.StateSuspended:
		event(corev1.EventTypeNormal, "Suspended", "Suspend", waitingMessage(after))
	case mlv1.StateInitializing:
		if after.Reason == mlv1.ReasonWorkersStarting {
			event(corev1.EventTypeNormal, "Initializing", "Start", "the workers are being started")
			return
		}
		event(corev1.EventTypeWarning, after.Reason, "Start", waitingMessage(after))
	case mlv1.StatePending:
		event(corev1.EventTypeWarning, after.Reason, "Start", waitingMessage(after))
	}
}

func waitingMessage(status *mlv1.TrainingJobStatus) string {
	for _, condition := range status.Conditions {
		if condition.Type == mlv1.ConditionInitialized {
			return condition.Message
		}
	}
	return status.Reason
}

// putOff remembers since when a job's minor changes wait to be written.
type putOff struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// wait returns how long a minor change should still wait; 0 when it is due.
func (p *putOff) wait(key types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, ok := p.since[key]
	if !ok {
		if p.since == nil {
			p.since = map[types.NamespacedName]time.Time{}
		}
		p.since[key], since = now, now
	}
	return max(since.Add(minorDelay).Sub(now), 0)
}

// settle forgets a job whose status is written.
func (p *putOff) settle(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, key)
}
