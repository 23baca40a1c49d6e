package aijob

import (
	"fmt"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// takeOver makes a status that came with the job from a backup that of the job as it is now, and returns whether it was one. Its pods and
// nodes were those of another cluster: a job that had not ended is queued again, which does not count as a retry.
func (p *planner) takeOver(status *aiplatformv1alpha1.AIJobStatus) bool {
	from := status.UID
	if from != "" || !status.Phase.Ended() { // that of a job that ended before version 0.4 stays as it is
		status.UID = p.job.UID
	}
	if from == "" || from == p.job.UID || p.job.DeletionTimestamp != nil {
		return false
	}
	if status.Phase.Ended() {
		return true
	}
	if status.Phase != aiplatformv1alpha1.AIJobQueued {
		status.PreemptionCount++
	}
	status.Assignments, status.Members, status.UnsettledFailures = nil, nil, nil
	p.queue(status, reasons.RestoredFromBackup, fmt.Sprintf(
		"restored from a backup of the job with the UID %s; the job is queued again, which does not count as a retry", from))
	return true
}
