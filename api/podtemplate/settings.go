// Package podtemplate has what users may say of the pods that the operator makes for them. Kinds take its fields into their spec. What
// reaches beyond the pod, such as the network or the processes of the node, is not among them.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
package podtemplate

import (
	corev1 "k8s.io/api/core/v1"
)

// Settings are the fields of a spec about its pods and about the container that runs the user's program.
type Settings struct {
	// volumes of the pods beside the operator's, at most 32. Sources are configMap, secret, projected, downwardAPI, emptyDir,
	// persistentVolumeClaim, ephemeral, csi, nfs and image. A volume is seen where volumeMounts or an init container mounts it.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(v, !has(v.hostPath))",message="spec.volumes: a hostPath opens the node to the job: use a claim, or another source"
	// +kubebuilder:validation:XValidation:rule="self.all(v, has(v.hostPath) || [has(v.configMap), has(v.secret), has(v.projected), has(v.downwardAPI), has(v.emptyDir), has(v.persistentVolumeClaim), has(v.ephemeral), has(v.csi), has(v.nfs), has(v.image)].filter(is, is).size() == 1)",message="spec.volumes: a volume has exactly one source: configMap, secret, projected, downwardAPI, emptyDir, persistentVolumeClaim, ephemeral, csi, nfs or image"
	// +kubebuilder:validation:XValidation:rule="self.all(v, !(v.name in ['config', 'shm', 'checkpoints', 'resume', 'checkpoint-credentials', 'resume-credentials', 'tensorboard', 'token', 'tmp']) && !v.name.startsWith('operator-'))",message="spec.volumes: config, shm, checkpoints, resume, checkpoint-credentials, resume-credentials, tensorboard, token, tmp and operator-* are names of the operator: choose another"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Volumes",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts say where the program sees the volumes, at most 64. Each path is absolute, and none of the operator's: /checkpoints,
	// /resume, /etc/training, /dev, /proc, /sys, /tensorboard, /var/run/checkpoint-credentials, /var/run/resume-credentials and
	// /var/run/secrets.
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.mountPath.startsWith('/'))",message="spec.volumeMounts: a mountPath is not absolute: write for example /data"
	// +kubebuilder:validation:XValidation:rule="self.all(m, !m.mountPath.startsWith('/') || !m.mountPath.matches('//|/[.][.]?(/|$)'))",message="spec.volumeMounts: a mountPath has a part that is empty, . or ..: write the path without it"
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.mountPath != '/' && ['/checkpoints', '/resume', '/etc/training', '/dev', '/proc', '/sys', '/tensorboard', '/var/run/checkpoint-credentials', '/var/run/resume-credentials', '/var/run/secrets'].all(p, m.mountPath != p && !m.mountPath.startsWith(p + '/')))",message="spec.volumeMounts: /, /checkpoints, /resume, /etc/training, /dev, /proc, /sys, /tensorboard, /var/run/checkpoint-credentials, /var/run/resume-credentials and /var/run/secrets are paths of the operator: choose another"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Volume mounts",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// envFrom gives the program each key of ConfigMaps and Secrets as an environment variable, at most 16 of them. Variables of env and
	// those that the operator sets win over these.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(e, has(e.configMapRef) != has(e.secretRef))",message="spec.envFrom: an entry names exactly one of configMapRef and secretRef"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Environment variables from ConfigMaps and Secrets",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// workingDir is the directory in which the program starts, an absolute path. Default: that of the image.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Working directory",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	WorkingDir string `json:"workingDir,omitempty"`

	// podTemplate has further settings of the pods.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod template",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	PodTemplate *PodTemplate `json:"podTemplate,omitempty"`
}
