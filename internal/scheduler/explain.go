package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// explain says of all jobs that wait why they do.
func (c *cycle) explain() {
	slices.SortStableFunc(c.waits, func(a, b *waiting) int { return strings.Compare(a.Queue, b.Queue) })
	position := 0
	for i, job := range c.waits {
		if i > 0 && job.Queue != c.waits[i-1].Queue {
			position = 0
		}
		position++
		wait := Wait{UID: job.UID, Position: position}
		wait.Reason, wait.Message = c.reason(job)
		c.out.Waiting = append(c.out.Waiting, wait)
	}
}

func (c *cycle) reason(job *waiting) (string, string) {
	switch job.verdict {
	case noQueue:
		return v1alpha1.ReasonQueueNotFound, fmt.Sprintf("waits for the AIJobQueue %s, which does not exist", job.Queue)
	case noCluster:
		return v1alpha1.ReasonClusterNotFound, fmt.Sprintf("waits for the ComputeCluster %s, which does not exist", job.Cluster)
	case suspended:
		return v1alpha1.ReasonQueueSuspended, fmt.Sprintf("waits for the AIJobQueue %s to be resumed: its spec.suspend is true", job.Queue)
	case overQuota:
		return v1alpha1.ReasonQuotaReached, fmt.Sprintf("waits for quota of the AIJobQueue %s", job.Queue)
	}
	return v1alpha1.ReasonInsufficientCapacity, "waits for room on nodes that match"
}
