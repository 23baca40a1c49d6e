// Package v1alpha1 is the API of redundant training jobs on spot instances, group training.training.dcnlab.com, version
// v1alpha1.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=training.training.dcnlab.com
package v1alpha1

//go:generate go run ../../../hack/crdedit trim ../../../config/crd/bases/training.training.dcnlab.com_spotinstancejobs.yaml jobTemplate
//go:generate go run ../../../hack/crdedit bound ../../../config/crd/bases/training.training.dcnlab.com_spotinstancejobs.yaml jobTemplate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of this package.
const GroupName = "training.training.dcnlab.com"

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
		&SpotInstanceJob{}, &SpotInstanceJobList{},
		&SpotInstanceVM{}, &SpotInstanceVMList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
