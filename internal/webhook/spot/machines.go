package spot

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// What Compute Engine is known to refuse, by https://cloud.google.com/compute/docs/gpus. Machine series and GPUs that are not here are new: they are
// left to the provider.
var (
	// withoutGPUs are the machine series that take none.
	withoutGPUs = []string{
		"c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "e2", "f1", "g1", "h3", "m1", "m2", "m3", "m4", "n2", "n2d", "n4", "t2a", "t2d", "x4", "z3",
	}
	// builtIn are GPUs that come with the machine types of one series alone.
	builtIn = map[string]string{
		"nvidia-l4": "g2", "nvidia-tesla-a100": "a2", "nvidia-a100-80gb": "a2", "nvidia-h100-80gb": "a3", "nvidia-h100-mega-80gb": "a3",
		"nvidia-h200-141gb": "a3", "nvidia-b200": "a4",
	}
	// attachable are GPUs that are attached to machine types of the series n1, and in which numbers.
	attachable = map[string][]int32{
		"nvidia-tesla-p4": {1, 2, 4}, "nvidia-tesla-p100": {1, 2, 4}, "nvidia-tesla-t4": {1, 2, 4}, "nvidia-tesla-v100": {1, 2, 4, 8},
	}
)

// gpuMistakes are why no instance of a machine type can have the GPUs.
func gpuMistakes(gpu *spotv1alpha1.GPU, machineType string) []metav1.StatusCause {
	series, _, _ := strings.Cut(machineType, "-")
	counts, isAttached := attachable[gpu.Type]
	with, isBuiltIn := builtIn[gpu.Type]
	switch {
	case slices.Contains(withoutGPUs, series):
		return []metav1.StatusCause{review.Invalid("spec.gpu", fmt.Sprintf("instances of machine type %s have no GPUs: choose a machine type in spec.gcp.machineType "+
			"that takes them, for example n1-standard-8, or brings them, for example g2-standard-8, or remove spec.gpu", machineType))}
	case isBuiltIn && series != with:
		return []metav1.StatusCause{review.Invalid("spec.gpu.type", fmt.Sprintf("%s comes with the machine types %s-* alone, not with %s: choose one of these in "+
			"spec.gcp.machineType and remove spec.gpu, or choose another GPU", gpu.Type, with, machineType))}
	case isAttached && slices.Contains([]string{"a2", "a3", "a4", "a4x", "g2", "g4"}, series):
		return []metav1.StatusCause{review.Invalid("spec.gpu.type", fmt.Sprintf("%s can be attached to machine types n1-* alone, and %s brings GPUs of its own: "+
			"remove spec.gpu, or choose another machine type in spec.gcp.machineType", gpu.Type, machineType))}
	case isAttached && !slices.Contains(counts, gpu.Count):
		return []metav1.StatusCause{review.Invalid("spec.gpu.count", fmt.Sprintf("no instance has %d GPUs of type %s: choose one of %s",
			gpu.Count, gpu.Type, strings.Trim(strings.ReplaceAll(fmt.Sprint(counts), " ", ", "), "[]")))}
	}
	return nil
}
