package podbuild

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlaceOn binds a pod to a set of nodes. What it required of nodes before holds as well.
func PlaceOn(pod *corev1.PodSpec, nodes ...string) {
	RequireOfNodes(pod, func(required []corev1.NodeSelectorTerm) (terms []corev1.NodeSelectorTerm) {
		for _, node := range nodes {
			for _, term := range required {
				bound := *term.DeepCopy()
				bound.MatchFields = append(bound.MatchFields, corev1.NodeSelectorRequirement{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
				})
				terms = append(terms, bound)
			}
		}
		return terms
	})
}

// RequiredNodes are the selectors that a node must match all: of a pod's affinity, and of where its volumes can be used.
func RequiredNodes(affinity *corev1.Affinity, topology []corev1.NodeSelector) []*corev1.NodeSelector {
	var all []*corev1.NodeSelector
	if affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		all = append(all, affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	for i := range topology {
		all = append(all, &topology[i])
	}
	return all
}

// RequireOfNodes changes the terms, at least one for a node to meet. Where the pod requires nothing, it begins with one that says nothing.
func RequireOfNodes(pod *corev1.PodSpec, change func([]corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm) {
	affinity := cmp.Or(pod.Affinity.DeepCopy(), &corev1.Affinity{})
	affinity.NodeAffinity = cmp.Or(affinity.NodeAffinity, &corev1.NodeAffinity{})
	required := []corev1.NodeSelectorTerm{{}}
	if r := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		required = r.NodeSelectorTerms
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: change(required)}
	pod.Affinity = affinity
}
