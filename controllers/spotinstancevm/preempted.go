package spotinstancevm

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// afterDeadline is how long after the announced end of an instance that runs on all the same it is deleted, once no pod
// of a job is on it.
const afterDeadline = 2 * time.Minute

// preempted follows an instance that its provider takes back until it is deleted. The pods on it ask for its replacement.
func (p *planner) preempted(i *instance) {
	if i.PreemptionNoticeTime == nil {
		seen := p.now
		if i.noticed && !i.notice.Time.IsZero() {
			seen = i.notice.Time
		}
		i.PreemptionNoticeTime = &metav1.Time{Time: seen}
		zone, machineType := i.Zone, p.kindOf(i).name
		p.emit(reporting.Warning(reasons.InstancePreempted, "Preempt", "%s", p.lossMessage(i)))
		p.count(func(m *metrics.SpotInstances) { m.Preempted(zone, machineType) })
	}
	if i.node != nil && !i.noticed && i.node.DeletionTimestamp == nil {
		p.do(actMark, i.Name)
	}
	if p.isDeleting() {
		p.markForDeletion(i, "the SpotInstanceVM is being deleted")
		return
	}
	switch why := &i.memo.preempted; {
	case i.isMissing():
		p.markForDeletion(i, "the provider does not have it any more")
	case i.isHalted() && !why.isSettled() && why.tries < 3:
		if p.isDue(why) {
			p.do(actWhy, i.Name)
		}
	case i.isHalted():
		p.markForDeletion(i, p.causeOf(i))
	case i.noticed:
		end := i.notice.Deadline
		if !i.notice.Time.Before(p.now) { // its source tells no time, and now stands in for it: the status knows when it was seen first
			end = i.PreemptionNoticeTime.Add(end.Sub(i.notice.Time))
		}
		end = end.Add(afterDeadline)
		if p.now.Before(end) {
			p.d.lookAgain(end.Sub(p.now))
			return
		}
		if len(i.pods) == 0 {
			p.markForDeletion(i, "its end was announced, and no pod of a job is on it")
		}
	}
}

func (p *planner) lossMessage(i *instance) string {
	switch {
	case i.noticed:
		return fmt.Sprintf("instance %s will be gone (%s: %s)", i.Name, i.notice.Source, i.notice.Detail)
	case i.isMissing():
		return fmt.Sprintf("instance %s is gone from zone %s, and the operator did not delete it", i.Name, i.Zone)
	default:
		return fmt.Sprintf("instance %s is %s, and the operator did not stop it", i.Name, i.State)
	}
}

func (p *planner) causeOf(i *instance) string {
	if i.memo.takenBack {
		return "its provider took it back"
	}
	return "it was stopped"
}

// noticeOf is what is left on the node of an instance that the provider stopped.
func noticeOf(i *instance, now time.Time) nodenotice.Notice {
	seen := now
	if i.PreemptionNoticeTime != nil {
		seen = i.PreemptionNoticeTime.Time
	}
	return nodenotice.Notice{
		Node: i.Name, Source: nodenotice.ComputeOperation, Detail: "state " + string(i.State), Time: seen, Deadline: seen.Add(nodenotice.Grace),
	}
}
