// Package podbuild puts what users say of their pods into the pods that the operator builds, for every kind in the same way. It is pure:
// what it adds depends on the spec alone, and what the operator has set wins.
package podbuild

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

const (
	sharedMemory     = "shm"
	sharedMemoryPath = "/dev/shm"
)

// Add puts the settings into a template, whose first container runs the user's program. Init containers come after those that the
// template has. Selector selects the pods of the job, for constraints that name none. The grace period is the kind's own matter.
func Add(template *corev1.PodTemplateSpec, settings *podtemplate.Settings, selector map[string]string) {
	pod, main := &template.Spec, &template.Spec.Containers[0]
	pod.Volumes = append(pod.Volumes, copies(settings.Volumes)...)
	main.VolumeMounts = append(main.VolumeMounts, copies(settings.VolumeMounts)...)
	main.EnvFrom = append(main.EnvFrom, copies(settings.EnvFrom)...)
	main.WorkingDir = cmp.Or(settings.WorkingDir, main.WorkingDir)
	of := settings.PodTemplate
	if of == nil {
		return
	}
	template.Labels = merged(template.Labels, of.Labels)
	template.Annotations = merged(template.Annotations, of.Annotations)
	for i := range of.InitContainers {
		pod.InitContainers = append(pod.InitContainers, restricted(&of.InitContainers[i]))
	}
	for i := range of.TopologySpreadConstraints {
		constraint := *of.TopologySpreadConstraints[i].DeepCopy()
		if constraint.LabelSelector == nil {
			constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: selector}
		}
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, constraint)
	}
	pod.ResourceClaims = append(pod.ResourceClaims, copies(of.ResourceClaims)...)
	pod.HostAliases = append(pod.HostAliases, copies(of.HostAliases)...)
	pod.DNSPolicy = cmp.Or(of.DNSPolicy, pod.DNSPolicy)
	pod.DNSConfig = cmp.Or(of.DNSConfig.DeepCopy(), pod.DNSConfig)
	pod.RuntimeClassName = cmp.Or(of.RuntimeClassName, pod.RuntimeClassName)
	pod.HostUsers = cmp.Or(of.HostUsers, pod.HostUsers)
	limitSharedMemory(pod, main, of)
}

// GracePeriod is that of the pods in seconds, where they need a time of their own at least.
func GracePeriod(settings *podtemplate.Settings, least int64) int64 {
	if settings.PodTemplate == nil {
		return least
	}
	return max(ptr.Deref(settings.PodTemplate.TerminationGracePeriodSeconds, 0), least)
}

// InitContainers are those of the settings.
func InitContainers(settings *podtemplate.Settings) []corev1.Container {
	if settings.PodTemplate == nil {
		return nil
	}
	return settings.PodTemplate.InitContainers
}

// Claims are the PersistentVolumeClaims that the settings name, each once.
func Claims(settings *podtemplate.Settings) []string {
	var names []string
	for i := range settings.Volumes {
		if claim := settings.Volumes[i].PersistentVolumeClaim; claim != nil && !slices.Contains(names, claim.ClaimName) {
			names = append(names, claim.ClaimName)
		}
	}
	return names
}

// limitSharedMemory gives the program's shared memory its size. Pods without a volume for it get one.
func limitSharedMemory(pod *corev1.PodSpec, main *corev1.Container, of *podtemplate.PodTemplate) {
	if of.ShmSize == nil {
		return
	}
	source := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(of.ShmSize.DeepCopy())}
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == sharedMemory })
	if at >= 0 {
		pod.Volumes[at].EmptyDir = source
		return
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: sharedMemory, VolumeSource: corev1.VolumeSource{EmptyDir: source}})
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: sharedMemory, MountPath: sharedMemoryPath})
}

// restricted is a container of the user's with what the Pod Security level restricted asks for, where it says nothing of it itself.
func restricted(of *corev1.Container) corev1.Container {
	container := *of.DeepCopy()
	least := child.Restricted()
	container.SecurityContext = cmp.Or(container.SecurityContext, &corev1.SecurityContext{})
	security := container.SecurityContext
	security.AllowPrivilegeEscalation = cmp.Or(security.AllowPrivilegeEscalation, least.AllowPrivilegeEscalation)
	if security.Capabilities == nil || len(security.Capabilities.Drop) == 0 {
		security.Capabilities = least.Capabilities
	}
	container.TerminationMessagePolicy = cmp.Or(container.TerminationMessagePolicy, corev1.TerminationMessageFallbackToLogsOnError)
	return container
}

// merged are the entries of both; those of the operator win.
func merged(operators, users map[string]string) map[string]string {
	if len(users) == 0 {
		return operators
	}
	all := maps.Clone(users)
	maps.Copy(all, operators)
	return all
}

// copies are deep copies of what a spec has, which belongs to the cache.
func copies[T any, P interface {
	*T
	DeepCopy() *T
}](list []T) []T {
	if list == nil {
		return nil
	}
	all := make([]T, 0, len(list))
	for i := range list {
		all = append(all, *P(&list[i]).DeepCopy())
	}
	return all
}
