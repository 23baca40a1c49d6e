package spotinstancejob

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// originalPrefix begins the names of the init containers that bring original images.
const originalPrefix = "original-"

// pullOriginal has the kubelet pull the image that a restored container was made from. The container runtime needs it
// beside the checkpoint. Where it is missing, as on a new node, it pulls it itself, but without credentials: so the images
// of pods with pull secrets are pulled before, by init containers that end at once.
func pullOriginal(pod *corev1.PodSpec, original corev1.Container) {
	small := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}
	name := originalPrefix + original.Name
	if len(name) > validation.DNS1123LabelMaxLength {
		name = name[:validation.DNS1123LabelMaxLength-1] + "x" // never a dash at the end
	}
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name: name, Image: original.Image, ImagePullPolicy: original.ImagePullPolicy,
		Command:   []string{"/bin/sh", "-c", "exit 0"},
		Resources: corev1.ResourceRequirements{Requests: small, Limits: small}, SecurityContext: original.SecurityContext,
	})
}
