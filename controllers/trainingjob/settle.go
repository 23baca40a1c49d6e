package trainingjob

import (
	"fmt"
	"time"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// unsettledOf are the failures of a job that may still turn out to be losses of a node.
func unsettledOf(status *mlv1.TrainingJobStatus) (list podend.Unsettled) {
	for _, u := range status.UnsettledFailures {
		list = append(list, podend.UnsettledFailure(u))
	}
	return list
}

func (p *planner) changeUnsettled(change func(*podend.Unsettled)) {
	list := unsettledOf(&p.status)
	change(&list)
	p.status.UnsettledFailures = nil
	for _, u := range list {
		p.status.UnsettledFailures = append(p.status.UnsettledFailures, mlv1.UnsettledFailure(u))
	}
}

// settle corrects the counts when failures turn out to be losses of a node.
func (p *planner) settle() {
	p.changeUnsettled(func(list *podend.Unsettled) {
		for _, lost := range list.Settle(p.now, p.nodes, p.job.Status.Reason == reasons.CheckingNodes) {
			p.status.DisruptionCount++
			p.explain(lost)
		}
	})
	if len(p.status.UnsettledFailures) > 0 {
		p.lookAgain(podend.SettleInterval)
	}
}

// explain replaces the words on a failure that was a loss, where it is the last one.
func (p *planner) explain(lost podend.Settled) {
	last := p.status.LastFailure
	if last == nil || last.Reason != reasons.PeerLost || !last.Time.Equal(&lost.Time) {
		return
	}
	loss := lossOfNode(lost.Node, lost.Why)
	loss.Output = last.Output
	p.status.LastFailure, p.status.FailureReason = loss.status(last.Attempt, lost.Time.Time), loss.Message
	if p.status.State == mlv1.StateRestarting && p.status.Reason == reasons.PeerLost {
		p.setRestarting(*loss)
	}
}

// lossOfNode is the loss of workers when only their node is known.
func lossOfNode(node, why string) *failure {
	return failure{worker: "a worker on node " + node, node: node}.lostTo(reasons.NodeLost, why)
}

// mustSettle says whether a failure that would end the job waits until it is known which nodes were lost: its own, or, where there were
// too many failures, those of failures before it.
func (p *planner) mustSettle(found failure, ends outcome) bool {
	p.changeUnsettled(func(list *podend.Unsettled) { list.Note(p.now, found.silent, false) })
	wait, nodes := unsettledOf(&p.status).Wait(p.now, ends.reason == reasons.BackoffLimitExceeded)
	if wait == 0 {
		return false
	}
	p.status.Reason = reasons.CheckingNodes
	p.condition(reasons.ConditionRestarting, p.status.State == mlv1.StateRestarting, reasons.CheckingNodes, fmt.Sprintf(
		"the job fails at %s unless a node is found to be lost until then (%s): %s", p.now.Add(wait).UTC().Format(time.RFC3339), nodes, ends.message))
	p.lookAgain(min(wait, podend.SettleInterval))
	return true
}
