// Package v1 is the API of machine-learning training jobs, group ml.example.com, version v1.
//
// +kubebuilder:object:generate=true
// +groupName=ml.example.com
package v1

// Objects are stored as v1. v1beta1 is served beside it, with the same schema, for those who still write it.
//go:generate go run ../../crdedit add-version --copy v1 --name v1beta1 --storage v1 --deprecated "ml.example.com/v1beta1 TrainingJob is deprecated: write apiVersion: ml.example.com/v1, everything else stays as it is" ../../../config/crd/bases/ml.example.com_trainingjobs.yaml

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
