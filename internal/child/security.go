package child

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// unprivilegedID is the user and group that pods run as, because many images name none or root.
const unprivilegedID int64 = 1000

// RestrictedPod is what the Pod Security level restricted asks of a pod, whatever its images.
func RestrictedPod() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(unprivilegedID), RunAsGroup: ptr.To(unprivilegedID),
		FSGroup: ptr.To(unprivilegedID), FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// Restricted is what the Pod Security level restricted asks of a container.
func Restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
