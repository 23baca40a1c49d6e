package podbuild

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

// OperatorContainer runs a program of the operator beside a program with these resources.
func OperatorContainer(name, image string, program corev1.ResourceRequirements, args ...string) corev1.Container {
	container := corev1.Container{
		Name: name, Image: image, Args: args, Resources: OperatorResources(program), SecurityContext: child.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	container.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	return container
}

// OperatorResources are small. Where the program has a CPU limit the operator's container gets one too, since the namespace may ask for
// limits; and where the pod would be of the class Guaranteed without it, it stays so.
func OperatorResources(program corev1.ResourceRequirements) corev1.ResourceRequirements {
	small := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
	if _, limited := program.Limits[corev1.ResourceCPU]; !limited {
		return small
	}
	small.Limits[corev1.ResourceCPU] = resource.MustParse("1")
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := program.Limits[name]
		request, requested := program.Requests[name]
		if !limited || requested && request.Cmp(limit) != 0 {
			return small
		}
	}
	guaranteed := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	return corev1.ResourceRequirements{Requests: guaranteed, Limits: guaranteed.DeepCopy()}
}
