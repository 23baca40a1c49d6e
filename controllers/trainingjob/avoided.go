package trainingjob

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
)

// maxAvoided bounds status.admission.avoidedNodes.
const maxAvoided = 100

// avoid notes the nodes of a place to which not all pods were bound that have their place there.
func (p *planner) avoid(until *metav1.Time) {
	of := p.status.Admission
	bound := map[string]int32{}
	for _, pod := range p.workerPods() {
		bound[pod.Spec.NodeName]++
	}
	for _, on := range of.Assignments {
		if bound[on.NodeName] < on.Workers {
			of.AvoidedNodes = slices.DeleteFunc(of.AvoidedNodes, func(known mlv1.AvoidedNode) bool { return known.NodeName == on.NodeName })
			of.AvoidedNodes = append(of.AvoidedNodes, mlv1.AvoidedNode{NodeName: on.NodeName, Until: until})
		}
	}
	of.AvoidedNodes = of.AvoidedNodes[max(len(of.AvoidedNodes)-maxAvoided, 0):]
}

// forgetAvoided lets the queue assign nodes again whose time is over, or all when the spec was changed.
func (p *planner) forgetAvoided() {
	of := p.status.Admission
	of.AvoidedNodes = slices.DeleteFunc(of.AvoidedNodes, func(avoided mlv1.AvoidedNode) bool {
		left := avoided.Until.Sub(p.now)
		if left > 0 {
			p.lookAgain(left)
		}
		return left <= 0 || p.isEdited()
	})
}

// requiredOf are the selectors that a node must match all to be assigned to a job: its own, those of its volumes, and one without the
// nodes that it avoids.
func requiredOf(job *mlv1.TrainingJob) []*corev1.NodeSelector {
	of := job.Status.Admission
	all := podbuild.RequiredNodes(job.Spec.Scheduling.Affinity, of.VolumeTopology)
	if len(of.AvoidedNodes) == 0 {
		return all
	}
	var others corev1.NodeSelectorTerm
	for _, avoided := range of.AvoidedNodes {
		others.MatchFields = append(others.MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{avoided.NodeName},
		})
	}
	return append(all, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{others}})
}

// describeRequired says, as the end of a message, which nodes a job may not have besides those that its spec leaves out; empty when it may
// have all others.
func describeRequired(of *mlv1.AdmissionStatus) string {
	if of == nil {
		return ""
	}
	text := ""
	if len(of.VolumeTopology) > 0 {
		text = "; its volumes can be used only on nodes that status.admission.volumeTopology selects"
	}
	if len(of.AvoidedNodes) > 0 {
		var names []string
		for _, avoided := range of.AvoidedNodes[:min(len(of.AvoidedNodes), few)] {
			names = append(names, avoided.NodeName+" until "+avoided.Until.UTC().Format(time.RFC3339))
		}
		text += "; it avoids nodes to which its pods were not bound: " + strings.Join(names, ", ")
		if more := len(of.AvoidedNodes) - len(names); more > 0 {
			text += " and more"
		}
	}
	return text
}
