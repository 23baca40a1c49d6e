// Package v1alpha1 is the API of queued AI jobs and of workflows made of them, group aiplatform.example.com, version
// v1alpha1.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=aiplatform.example.com
package v1alpha1

//go:generate go run ../../../hack/crdedit pods ../../../config/crd/bases/aiplatform.example.com_aijobs.yaml .
//go:generate go run ../../../hack/crdedit editable ../../../config/crd/bases/aiplatform.example.com_aijobs.yaml AIJob
//go:generate go run ../../../hack/crdedit pods ../../../config/crd/bases/aiplatform.example.com_agents.yaml .
//go:generate go run ../../../hack/crdedit pods ../../../config/crd/bases/aiplatform.example.com_aijobqueues.yaml workers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package.
const GroupName = "aiplatform.example.com"

var (
	// GroupVersion names the group and version of the types in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AIJob{}, &AIJobList{},
		&AIJobQueue{}, &AIJobQueueList{},
		&ComputeCluster{}, &ComputeClusterList{},
		&Agent{}, &AgentList{},
		&AgentWorkflow{}, &AgentWorkflowList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
