package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// PodOptions are fields of a spec about its pods that TrainingJobs have elsewhere.
type PodOptions struct {
	// imagePullPolicy says when the image is pulled. Default as for any container: Always for the tag latest, IfNotPresent otherwise.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image pull policy",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:imagePullPolicy","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets name the Secrets in the namespace of the pods with which their images are pulled, at most 10.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image pull secrets",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// securityContext is the pod security context. Default: user and group 1000, not root, with the runtime's default seccomp profile, as
	// the Pod Security level restricted asks for.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Security context",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`

	// affinity of the pods to nodes.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Affinity",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Affinity *Affinity `json:"affinity,omitempty"`

	// priorityClassName is the PriorityClass of the pods. A queue has one of its own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Priority class",xDescriptors={"urn:alm:descriptor:io.kubernetes:PriorityClass","urn:alm:descriptor:com.tectonic.ui:advanced"}
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// PodAffinity is the affinity as a pod has it; nil where nothing is said.
func (o *PodOptions) PodAffinity() *corev1.Affinity {
	if o.Affinity == nil || o.Affinity.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: o.Affinity.NodeAffinity}
}

// Affinity says which nodes pods prefer or need.
type Affinity struct {
	// nodeAffinity is what pods require of nodes, and what they prefer. Of AIJobs preferences have no effect, because the operator chooses
	// the nodes.
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
}
