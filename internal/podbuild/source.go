package podbuild

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

const (
	// workspace is the volume of the code, which init containers of users may mount, too.
	workspace         = "operator-workspace"
	sourceFiles       = "operator-source-files"
	sourceCredentials = "operator-source-credentials"
	// sourceMounts is where the container sees what it needs.
	sourceMounts = "/var/run/operator-source/"
)

// proxies are the variables of the program that what fetches its code heeds, too.
var proxies = []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"}

// AddSource has a container fetch the code of the program, which is the first container of the pod, before all else. What was fetched at
// the first start is fetched again, or nothing is; nil before. Image is the operator's own.
func AddSource(pod *corev1.PodSpec, code *podtemplate.Source, first *podtemplate.SourceStatus, image string) {
	if code == nil {
		return
	}
	main := &pod.Containers[0]
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: workspace, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	seen, directory := corev1.VolumeMount{Name: workspace, MountPath: podtemplate.WorkspaceMount}, code.Directory()
	inside := seen
	if !code.IsInWorkspace() {
		directory = path.Join(podtemplate.WorkspaceMount, path.Base(directory))
		seen = corev1.VolumeMount{Name: workspace, MountPath: code.Directory(), SubPath: path.Base(directory)}
	}
	main.VolumeMounts = append(main.VolumeMounts, seen)
	main.WorkingDir = cmp.Or(main.WorkingDir, code.Directory())

	of, _ := json.Marshal(code) // came from JSON, so it has a JSON form
	fetches := OperatorContainer(source.Container, image, main.Resources, "source", "fetch")
	fetches.Env = []corev1.EnvVar{
		{Name: source.EnvSource, Value: strings.ReplaceAll(string(of), "$", "$$")}, // or Kubernetes would take $(NAME) in it for a variable
		{Name: source.EnvDirectory, Value: strings.ReplaceAll(directory, "$", "$$")},
	}
	if pinned := source.Pinned(code, first); pinned != nil {
		fetches.Env = append(fetches.Env, corev1.EnvVar{Name: source.EnvDigest, Value: pinned.Digest})
	}
	fetches.VolumeMounts = []corev1.VolumeMount{inside}
	// What it needs may not exist yet, which the container says, and goes on when it appears.
	add := func(name, variable string, from corev1.VolumeSource) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: from})
		fetches.VolumeMounts = append(fetches.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: sourceMounts + variable, ReadOnly: true})
		fetches.Env = append(fetches.Env, corev1.EnvVar{Name: variable, Value: sourceMounts + variable})
	}
	if code.ConfigMap != nil {
		add(sourceFiles, source.EnvFiles, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: code.ConfigMap.Name}, Optional: ptr.To(true),
		}})
	}
	if name := code.Secret(); name != "" {
		add(sourceCredentials, source.EnvCredentials, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: ptr.To(true)}})
	}
	for _, variable := range main.Env {
		if slices.Contains(proxies, variable.Name) {
			fetches.Env = append(fetches.Env, *variable.DeepCopy())
		}
	}
	pod.InitContainers = slices.Concat([]corev1.Container{fetches}, pod.InitContainers)
}
