package spotinstancevm

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// join waits until the instance is a ready node, with all its GPUs.
func (p *planner) join(i *instance) {
	if p.isDeleting() {
		p.markForDeletion(i, "the SpotInstanceVM is being deleted")
		return
	}
	if i.node != nil {
		p.label(i)
		if i.ReadyTime == nil && i.isNodeReady(p.gpus(p.kindOf(i))) {
			p.becomeReady(i)
			return
		}
	}
	deadline := i.CreationTime.Add(nodejoin.Timeout(&p.vm.Spec))
	if !p.now.Before(deadline) {
		p.tooLate(i)
		return
	}
	p.d.lookAgain(deadline.Sub(p.now))
	if !i.used {
		p.unneeded(i)
	} else if !i.memo.idleSince.IsZero() {
		p.noteIdle(i, time.Time{})
	}
	if i.State != spotv1alpha1.InstanceDeleting && p.isLoginDue(i) {
		p.do(actLogin, i.Name)
	}
}

// label marks the node as the instance of its SpotInstanceVM, and opens it to pods.
func (p *planner) label(i *instance) {
	labelled := !isUnverified(i.node) && equality.Semantic.DeepDerivative(labelsOfNode(p.vm), i.node.Labels) &&
		equality.Semantic.DeepDerivative(pricesOfNode(p.vm, &i.ProvisionedInstance), i.node.Annotations)
	if i.node.DeletionTimestamp == nil && !labelled {
		p.do(actLabel, i.Name)
	}
}

func isUnverified(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == spotv1alpha1.TaintUnverified })
}

func labelsOfNode(vm *spotv1alpha1.SpotInstanceVM) map[string]string {
	return map[string]string{
		spotv1alpha1.LabelSpotInstanceVM: vm.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: vm.Namespace,
	}
}

func pricesOfNode(vm *spotv1alpha1.SpotInstanceVM, entry *spotv1alpha1.ProvisionedInstance) map[string]string {
	return zonehistory.NodeAnnotations(vm, zonehistory.TypeOf(vm, entry), entry.Zone, entry.ProvisioningModel)
}

func (p *planner) becomeReady(i *instance) {
	i.ReadyTime = &metav1.Time{Time: p.now}
	i.Message = ""
	if p.d.hold.problem.reason == reasons.JoinFailed {
		p.d.hold = hold{}
	}
	took := max(p.now.Sub(i.CreationTime.Time), 0) // the clocks of manager and provider may differ
	zone, model := i.Zone, string(i.ProvisioningModel)
	p.emit(reporting.Normal(reasons.EventInstanceReady, "Join", "instance %s is a ready node after %s", i.Name, took.Round(time.Second)))
	p.count(func(m *metrics.SpotInstances) { m.Ready(zone, model, took) })
	p.ready(i)
}

// tooLate deletes an instance that does not become a ready node. The next one probably will not either: it waits longer
// each time.
func (p *planner) tooLate(i *instance) {
	what := "no node named " + i.Name + " joined"
	switch {
	case i.node == nil && p.nodes[i.Name] != nil:
		what = fmt.Sprintf("the Node of this name does not have the labels %s and %s of the instance, so that it is another machine's",
			spotv1alpha1.LabelSpotInstanceVM, spotv1alpha1.LabelSpotInstanceVMNamespace)
	case i.node != nil && i.ReadyTime != nil:
		what = "its node left"
	case i.node != nil:
		what = "its node is not Ready"
		if _, notReady := i.notReadySince(); !notReady {
			what = fmt.Sprintf("its node does not show %d %s", p.gpus(p.kindOf(i)), "nvidia.com/gpu")
		}
	case i.memo.joining.err != nil:
		what = short(i.memo.joining.err)
	}
	message := fmt.Sprintf("instance %s did not become a ready node within spec.joinTimeout (%s): %s: read its serial console, "+
		"and see whether the image has kubelet, kubeadm and a container runtime and reaches the API server", i.Name, nodejoin.Timeout(&p.vm.Spec), what)
	p.emit(reporting.Warning(reasons.JoinFailed, "Join", "%s", message))
	p.problem = problem{reason: reasons.JoinFailed, message: message}
	p.d.hold = p.d.hold.extend(p.now, p.vm.Generation, p.problem, 0)
	p.markForDeletion(i, "it did not become a ready node in time")
}

// unneeded deletes an instance that is not yet a node and that no pod has needed for as long as an idle one may be.
func (p *planner) unneeded(i *instance) {
	since := p.idleSince(i)
	if left := since.Add(p.idleTimeout()).Sub(p.now); left > 0 {
		p.d.lookAgain(left)
		return
	}
	p.markForDeletion(i, "no pod has needed it for spec.idleTimeout")
}

func (p *planner) isLoginDue(i *instance) bool {
	if p.vm.Spec.KubeadmJoinConfig.Method != spotv1alpha1.JoinBySSH || i.node != nil || i.State != spotv1alpha1.InstanceRunning {
		return false
	}
	r := &i.memo.joining
	if r.running || (r.isSettled() && r.err == nil) {
		return false
	}
	if r.err != nil {
		i.Message = short(r.err)
	}
	return p.isDue(r)
}
