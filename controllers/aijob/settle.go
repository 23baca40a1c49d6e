package aijob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get

// observeNodes reads the nodes that may be why members lost a peer from the API server. That is rare.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) (err error) {
	var names []string
	for _, unsettled := range o.job.Status.UnsettledFailures {
		names = slices.AppendSeq(names, maps.Keys(unsettled.Nodes))
	}
	if phase := o.job.Status.Phase; phase == aiplatformv1alpha1.AIJobScheduled || phase == aiplatformv1alpha1.AIJobRunning {
		for _, pod := range program.Silent(o.members()) {
			names = append(names, pod.Spec.NodeName)
		}
	}
	o.nodes, err = reconciling.GetNamed[corev1.Node](ctx, r.Direct, names)
	return err
}

// unsettledOf are the failures of a job that may still turn out to be losses of a node.
func unsettledOf(status *aiplatformv1alpha1.AIJobStatus) (list podend.Unsettled) {
	for _, u := range status.UnsettledFailures {
		list = append(list, podend.UnsettledFailure(u))
	}
	return list
}

func changeUnsettled(status *aiplatformv1alpha1.AIJobStatus, change func(*podend.Unsettled)) {
	list := unsettledOf(status)
	change(&list)
	status.UnsettledFailures = nil
	for _, u := range list {
		status.UnsettledFailures = append(status.UnsettledFailures, aiplatformv1alpha1.UnsettledFailure(u))
	}
}

// settle corrects the counts when failures turn out to be losses of a node, and says whether it did: that is written before anything is
// decided by it.
func (p *planner) settle(status *aiplatformv1alpha1.AIJobStatus) (corrected bool) {
	changeUnsettled(status, func(list *podend.Unsettled) {
		lost := int32(len(list.Settle(p.now, p.nodes, status.Reason == reasons.CheckingNodes)))
		status.RetryCount -= lost
		status.PreemptionCount += lost // the sum numbers the tries, and stays
		corrected = lost > 0
	})
	if len(status.UnsettledFailures) > 0 {
		p.lookAgain(podend.SettleInterval)
	}
	return corrected
}

// blameNode explains the end of members that lost contact to one whose node was lost.
func (o *observed) blameNode(found *failure, members []*corev1.Pod) *failure {
	silent := podend.Boots(program.Silent(members), o.nodes)
	if held := unsettledOf(&o.job.Status).Held(); held != nil {
		silent = held.Nodes
	} else if found.reason != reasons.PeerLost {
		return found
	}
	if node, why := podend.LostNode(silent, o.nodes); node != "" {
		return lossOf(reasons.NodeLost, program.LossOf(reasons.NodeLost, "a pod on node "+node, why).Message)
	}
	found.silent = silent
	return found
}

// mustSettle says whether a failure that used up the retries waits until it is known which nodes were lost, its own or those of failures
// before it.
func (p *planner) mustSettle(status *aiplatformv1alpha1.AIJobStatus, found *failure) bool {
	wait, nodes := unsettledOf(status).Wait(p.now, true)
	if wait == 0 {
		return false
	}
	status.Reason, status.Message = reasons.CheckingNodes, fmt.Sprintf(
		"the job becomes a dead letter at %s unless a node is found to be lost until then (%s): %s",
		p.now.Add(wait).UTC().Format(time.RFC3339), nodes, found.message)
	reporting.Set(&status.Conditions, p.job.Generation, p.now, reasons.ConditionReady, metav1.ConditionFalse, status.Reason, status.Message)
	p.lookAgain(min(wait, podend.SettleInterval))
	return true
}
