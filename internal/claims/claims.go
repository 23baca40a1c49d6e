// Package claims tells on which nodes the volumes of PersistentVolumeClaims can be used, for those who choose the nodes of pods.
package claims

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// Claim is a PersistentVolumeClaim with what decides where it can be used.
type Claim struct {
	// Claim as it is, or as it will be created.
	Claim *corev1.PersistentVolumeClaim
	// Volume to which it is bound, and Class of one that is not; nil when they do not exist or were not read.
	Volume *corev1.PersistentVolume
	Class  *storagev1.StorageClass
}

// Read reads what a claim is bound to, or is going to be.
func Read(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) (is Claim, err error) {
	is.Claim = claim
	if name := claim.Spec.VolumeName; name != "" {
		is.Volume, err = reconciling.Get[corev1.PersistentVolume](ctx, reader, "", name)
	} else if name := ptr.Deref(claim.Spec.StorageClassName, ""); name != "" {
		is.Class, err = reconciling.Get[storagev1.StorageClass](ctx, reader, "", name)
	}
	return is, err
}

// NotFound says that a claim which a field of a spec names does not exist, and what to do.
func NotFound(namespace, name, field string) string {
	return fmt.Sprintf("there is no PersistentVolumeClaim %s in namespace %s: create it, or correct %s", name, namespace, field)
}

// IsBound says whether a claim has its volume.
func IsBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound
}

// Topology are the selectors that a node must match all for the claims to be usable on it, each once.
func Topology(all []Claim) []corev1.NodeSelector {
	var selectors []corev1.NodeSelector
	add := func(selector corev1.NodeSelector) {
		same := func(other corev1.NodeSelector) bool { return equality.Semantic.DeepEqual(selector, other) }
		if !slices.ContainsFunc(selectors, same) {
			selectors = append(selectors, selector)
		}
	}
	for _, of := range all {
		switch {
		case of.Volume != nil && of.Volume.Spec.NodeAffinity != nil && of.Volume.Spec.NodeAffinity.Required != nil:
			add(*of.Volume.Spec.NodeAffinity.Required)
		case of.Class != nil && len(of.Class.AllowedTopologies) > 0:
			add(selectorOf(of.Class.AllowedTopologies))
		}
	}
	return selectors
}

// selectorOf selects the nodes of topologies.
func selectorOf(topologies []corev1.TopologySelectorTerm) corev1.NodeSelector {
	var selector corev1.NodeSelector
	for _, topology := range topologies {
		var term corev1.NodeSelectorTerm
		for _, label := range topology.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: label.Key, Operator: corev1.NodeSelectorOpIn, Values: label.Values,
			})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return selector
}
