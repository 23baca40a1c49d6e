package containercheckpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// gpuAdvice is what NVIDIA's GPUs need.
const gpuAdvice = "install CRIU 4.1 or newer with its CUDA plugin (cuda_plugin.so) and NVIDIA's program cuda-checkpoint (driver 570 or newer) on the " +
	"node, or let the training keep checkpoints itself"

// gpuKind is a make of GPU that CRIU needs help with.
type gpuKind struct {
	name string
	// prefix of the resources that stand for such a GPU.
	prefix string
	// files are needed, each at one of its places below /usr: a plugin of CRIU, and programs.
	files  [][]string
	advice string
}

var gpuKinds = []gpuKind{
	{
		name: "NVIDIA GPU", prefix: "nvidia.com/", advice: gpuAdvice,
		files: [][]string{
			pluginPaths("cuda_plugin.so"),
			{"bin/cuda-checkpoint", "local/bin/cuda-checkpoint", "sbin/cuda-checkpoint", "local/nvidia/bin/cuda-checkpoint"},
		},
	},
	{
		name: "AMD GPU", prefix: "amd.com/gpu", files: [][]string{pluginPaths("amdgpu_plugin.so")},
		advice: "install CRIU's amdgpu plugin (amdgpu_plugin.so) on the node, or let the training keep checkpoints itself",
	},
}

// pluginPaths are where CRIU looks for its plugins, by distribution.
func pluginPaths(file string) []string {
	var paths []string
	for _, folder := range []string{"lib/criu", "local/lib/criu", "lib64/criu", "libexec/criu", "lib/x86_64-linux-gnu/criu", "lib/aarch64-linux-gnu/criu"} {
		paths = append(paths, filepath.Join(folder, file))
	}
	return paths
}

// graphics says why the memory of the pod's GPUs cannot be checkpointed on this node; empty when it can, or when there are
// none. Without the plugins CRIU fails or, worse, the processes hang when they are restored.
func graphics(b checkpointbackup.Backup, pod *corev1.Pod, programs, node string) string {
	for _, container := range pod.Spec.Containers {
		asked := len(b.Spec.Containers) == 0 ||
			slices.ContainsFunc(b.Spec.Containers, func(c checkpointbackup.Container) bool { return c.Name == container.Name })
		if !asked {
			continue
		}
		for _, kind := range gpuKinds {
			if missing := kind.missing(container, programs); missing != "" {
				return fmt.Sprintf("container %s uses an %s, and node %s has no %s, without which its memory is not part of a checkpoint: %s",
					container.Name, kind.name, node, missing, kind.advice)
			}
		}
	}
	return ""
}

func (k gpuKind) missing(container corev1.Container, programs string) string {
	if !k.usedBy(container) {
		return ""
	}
	for _, places := range k.files {
		if !slices.ContainsFunc(places, func(path string) bool {
			info, err := os.Stat(filepath.Join(programs, path))
			return err == nil && info.Mode().IsRegular()
		}) {
			return filepath.Base(places[0])
		}
	}
	return ""
}

func (k gpuKind) usedBy(container corev1.Container) bool {
	for _, resources := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for resource, quantity := range resources {
			if !quantity.IsZero() && strings.HasPrefix(string(resource), k.prefix) {
				return true
			}
		}
	}
	return false
}
