// Package v1 is the API of machine-learning training jobs, group ml.example.com, version v1.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=ml.example.com
package v1

//go:generate go run ../../../hack/crdedit bound ../../../config/crd/bases/ml.example.com_trainingjobs.yaml scheduling
//go:generate go run ../../../hack/crdedit pods ../../../config/crd/bases/ml.example.com_trainingjobs.yaml .
//go:generate go run ../../../hack/crdedit editable ../../../config/crd/bases/ml.example.com_trainingjobs.yaml TrainingJob

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package.
const GroupName = "ml.example.com"

var (
	// GroupVersion names the group and version of the types in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1"}

	// SchemeBuilder collects the functions that add this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &TrainingJob{}, &TrainingJobList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
