package spotinstancevm

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

// afterDeadline is how long after the announced end of an instance that runs on all the same it is deleted, once no pod
// of a job is on it.
const afterDeadline = 2 * time.Minute

// preempted sees an instance off that its provider, or whoever left the notice, takes away. Its replacement is asked for
// by the pods that are on it.
func (p *planner) preempted(i *instance) {
	if i.PreemptionNoticeTime == nil {
		seen := p.now
		if i.noticed && !i.notice.Time.IsZero() {
			seen = i.notice.Time
		}
		i.PreemptionNoticeTime = &metav1.Time{Time: seen}
		zone, machineType := i.Zone, p.vm.Spec.GCP.MachineType
		p.tell(corev1.EventTypeWarning, reasons.InstancePreempted, "Preempt", p.farewell(i), func(c counter) { c.Preempted(zone, machineType) })
	}
	if i.node != nil && !i.noticed && i.node.DeletionTimestamp == nil {
		p.do(actMark, i.Name)
	}
	if p.deleting() {
		p.condemn(i, "the SpotInstanceVM is being deleted")
		return
	}
	switch why := &i.memo.preempted; {
	case i.missing():
		p.condemn(i, "the provider does not have it any more")
	case i.halted() && !why.settled() && why.tries < 3:
		if p.wait(why) {
			p.do(actWhy, i.Name)
		}
	case i.halted():
		p.condemn(i, p.causeOf(i))
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
			p.condemn(i, "its end was announced, and no pod of a job is on it")
		}
	}
}

func (p *planner) farewell(i *instance) string {
	switch {
	case i.noticed:
		return fmt.Sprintf("instance %s will be gone (%s: %s)", i.Name, i.notice.Source, i.notice.Detail)
	case i.missing():
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
