package podbuild

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// Conflict is the first of the settings that does not go with the others, or with the code, which the schema cannot see; empty when all do.
// Resources are those of the program. Least is the grace period that the operator needs; 0 where it needs none.
func Conflict(settings *podtemplate.Settings, code *podtemplate.Source, resources *corev1.ResourceRequirements, least int64) (field, message string) {
	if field, message = codeConflict(settings, code); field != "" {
		return field, message
	}
	for i, mount := range settings.VolumeMounts {
		if !hasVolume(settings, mount.Name) {
			return fmt.Sprintf("spec.volumeMounts[%d].name", i), fmt.Sprintf("spec.volumes has no volume %s: add it, or correct the name", mount.Name)
		}
	}
	of := settings.PodTemplate
	if of == nil {
		return claimConflict(resources, nil)
	}
	for i := range of.InitContainers {
		for j, mount := range of.InitContainers[i].VolumeMounts {
			if mount.Name == workspace {
				if code == nil {
					return fmt.Sprintf("spec.podTemplate.initContainers[%d].volumeMounts[%d].name", i, j),
						"there is a volume " + workspace + " only with spec.source: name the code there, or remove the mount"
				}
				continue
			}
			if !hasVolume(settings, mount.Name) {
				return fmt.Sprintf("spec.podTemplate.initContainers[%d].volumeMounts[%d].name", i, j),
					fmt.Sprintf("spec.volumes has no volume %s: add it, or correct the name", mount.Name)
			}
		}
	}
	if grace := of.TerminationGracePeriodSeconds; grace != nil && *grace < least {
		return "spec.podTemplate.terminationGracePeriodSeconds", fmt.Sprintf("%d is less than the %d that a last checkpoint may take: raise it, or remove it",
			*grace, least)
	}
	if memory, limited := limitOf(resources, corev1.ResourceMemory); limited && of.ShmSize != nil && of.ShmSize.Cmp(memory) > 0 {
		return "spec.podTemplate.shmSize", fmt.Sprintf("%s is more than the memory limit %s, which it counts against: lower it", of.ShmSize, &memory)
	}
	return claimConflict(resources, of.ResourceClaims)
}

// codeConflict is a mount that would hide the code.
func codeConflict(settings *podtemplate.Settings, code *podtemplate.Source) (field, message string) {
	if code == nil {
		return "", ""
	}
	taken := []string{code.Directory()}
	if code.IsInWorkspace() {
		taken = append(taken, podtemplate.WorkspaceMount)
	}
	for i, mount := range settings.VolumeMounts {
		if at := strings.TrimSuffix(mount.MountPath, "/"); slices.ContainsFunc(taken, func(path string) bool { return path == at || strings.HasPrefix(path, at+"/") }) {
			return fmt.Sprintf("spec.volumeMounts[%d].mountPath", i), fmt.Sprintf("%s would hide the code, which spec.source puts into %s: choose another path",
				mount.MountPath, code.Directory())
		}
	}
	return "", ""
}

// claimConflict is a claim that the program uses and the pod does not have.
func claimConflict(resources *corev1.ResourceRequirements, claims []corev1.PodResourceClaim) (field, message string) {
	for _, used := range ptr.Deref(resources, corev1.ResourceRequirements{}).Claims {
		if !slices.ContainsFunc(claims, func(claim corev1.PodResourceClaim) bool { return claim.Name == used.Name }) {
			return "spec.resources.claims", fmt.Sprintf("%s is not in spec.podTemplate.resourceClaims: add it, or correct the name", used.Name)
		}
	}
	return "", ""
}

func hasVolume(settings *podtemplate.Settings, name string) bool {
	return slices.ContainsFunc(settings.Volumes, func(v corev1.Volume) bool { return v.Name == name })
}

func limitOf(resources *corev1.ResourceRequirements, name corev1.ResourceName) (resource.Quantity, bool) {
	if resources == nil {
		return resource.Quantity{}, false
	}
	quantity, limited := resources.Limits[name]
	return quantity, limited
}
