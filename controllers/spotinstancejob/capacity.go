package spotinstancejob

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// unschedulable are the pods for which the scheduler finds no room.
func (p *planner) unschedulable() []*corev1.Pod {
	var list []*corev1.Pod
	for _, r := range p.replicas {
		for _, pod := range r.live() {
			if podend.Unschedulable(pod) != nil {
				list = append(list, pod)
			}
		}
	}
	return list
}

// unplaced are the replicas without a node that have not failed.
func (p *planner) unplaced() []string {
	var list []string
	for i, r := range p.replicas {
		placed := p.outcomes[i].kind == hopeless || p.outcomes[i].kind == succeeded ||
			r.current == nil && r.status != nil && r.status.Phase == spotv1alpha1.ReplicaFailed
		for _, pod := range r.live() {
			placed = placed || pod.Spec.NodeName != ""
		}
		if !placed {
			list = append(list, strconv.Itoa(i))
		}
	}
	return list
}

// setCapacity says whether every replica has a node, and what is done about it.
func (p *planner) setCapacity(status *spotv1alpha1.SpotInstanceJobStatus) {
	set := func(is metav1.ConditionStatus, reason, message string) {
		p.set(status, reasons.ConditionCapacityAvailable, is, reason, message)
	}
	unplaced := p.unplaced()
	who := "replica " + strings.Join(unplaced, ", ")
	if len(unplaced) > 1 {
		who = "replicas " + strings.Join(unplaced, ", ")
	}
	waiting, ref := p.unschedulable(), p.job.Spec.SpotInstanceVMRef
	switch {
	case p.isSuspended():
		set(metav1.ConditionUnknown, reasons.Suspended, "scheduling paused: spec.jobTemplate.spec.suspend is true")
	case len(unplaced) == 0:
		set(metav1.ConditionTrue, reasons.ReplicasPlaced, "every replica has a node")
	case len(waiting) == 0:
		set(metav1.ConditionFalse, reasons.ReplicasStarting, "the pod of "+who+" is not placed yet")
	case ref == nil:
		set(metav1.ConditionFalse, reasons.Unschedulable, fmt.Sprintf(
			"%s cannot be scheduled: %s; free resources, or name a SpotInstanceVM in spec.spotInstanceVMRef, which then creates instances",
			who, podend.Unschedulable(waiting[0]).Message))
	case p.vm == nil:
		set(metav1.ConditionFalse, reasons.SpotInstanceVMNotFound, fmt.Sprintf(
			"%s cannot be scheduled, and SpotInstanceVM %s does not exist: create it, or correct spec.spotInstanceVMRef", who, ref.Name))
	default:
		if told := p.vmProblem(); told != nil {
			set(metav1.ConditionFalse, told.Reason, fmt.Sprintf("%s waits for an instance; SpotInstanceVM %s: %s", who, ref.Name, told.Message))
			return
		}
		set(metav1.ConditionFalse, reasons.Provisioning, fmt.Sprintf(
			"%s waits for an instance of SpotInstanceVM %s, which is being created or joins the cluster", who, ref.Name))
	}
}

// vmProblem is the condition of the SpotInstanceVM that says why there are no instances; nil for none.
func (p *planner) vmProblem() *metav1.Condition {
	for _, kind := range []string{reasons.ConditionCredentialsValid, reasons.ConditionCapacityAvailable, reasons.ConditionReady} {
		c := meta.FindStatusCondition(p.vm.Status.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}
