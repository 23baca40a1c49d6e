package podtemplate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PodTemplate has settings of pods. Their meaning is that of the fields of the same name in a pod (kubectl explain pod.spec).
//
// +kubebuilder:validation:XValidation:rule="!has(self.dnsPolicy) || self.dnsPolicy != 'None' || (has(self.dnsConfig) && has(self.dnsConfig.nameservers) && self.dnsConfig.nameservers.size() > 0)",fieldPath=".dnsConfig",message="spec.podTemplate.dnsConfig: has no nameservers, which dnsPolicy None needs: name at least one"
type PodTemplate struct {
	// labels of the pods beside the operator's, at most 32.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['training-job', 'trainingjob', 'replica-id', 'job-name', 'controller-uid']) && !['batch.kubernetes.io/', 'ml.example.com/', 'aiplatform.example.com/', 'training.dcnlab.com/', 'training.training.dcnlab.com/', 'scheduling.x-k8s.io/', 'kueue.x-k8s.io/'].exists(p, k.startsWith(p)))",message="spec.podTemplate.labels: training-job, trainingjob, replica-id, job-name, controller-uid, and all that begin with batch.kubernetes.io/, ml.example.com/, aiplatform.example.com/, training.dcnlab.com/, scheduling.x-k8s.io/ or kueue.x-k8s.io/ are keys of the operator: choose others"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the pods beside the operator's, at most 32.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.startsWith('kueue.x-k8s.io/podset-') || !['batch.kubernetes.io/', 'ml.example.com/', 'aiplatform.example.com/', 'training.dcnlab.com/', 'training.training.dcnlab.com/', 'scheduling.x-k8s.io/', 'kueue.x-k8s.io/'].exists(p, k.startsWith(p)))",message="spec.podTemplate.annotations: all that begin with batch.kubernetes.io/, ml.example.com/, aiplatform.example.com/, training.dcnlab.com/, scheduling.x-k8s.io/ or kueue.x-k8s.io/, but for kueue.x-k8s.io/podset-*, are keys of the operator: choose others"
	Annotations map[string]string `json:"annotations,omitempty"`

	// initContainers run before the program, one after the other, at most 8. One with restartPolicy Always is a sidecar: it runs beside
	// the program, and is ended after it. What their resources ask for is counted with the program's. They get the security context
	// that the Pod Security level restricted asks for where they set none.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, !(c.name in ['trainer', 'job', 'worker', 'network-preflight', 'checkpoint-restore', 'checkpoint-agent', 'tensorboard']) && !c.name.startsWith('operator-'))",message="spec.podTemplate.initContainers: trainer, job, worker, network-preflight, checkpoint-restore, checkpoint-agent, tensorboard and operator-* are names of the operator: choose another"
	// +kubebuilder:validation:XValidation:rule="self.all(c, has(c.image) && c.image != '')",message="spec.podTemplate.initContainers: a container has no image: name one"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.restartPolicy) || c.restartPolicy == 'Always')",message="spec.podTemplate.initContainers: restartPolicy is Always, for a sidecar, or left out"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",message="spec.podTemplate.initContainers: privileged opens the node to the job: remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.securityContext) || !has(c.securityContext.allowPrivilegeEscalation) || !c.securityContext.allowPrivilegeEscalation)",message="spec.podTemplate.initContainers: allowPrivilegeEscalation lets a program become root: remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.securityContext) || !has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add) || c.securityContext.capabilities.add.size() == 0)",message="spec.podTemplate.initContainers: added capabilities reach beyond the pod: remove capabilities.add"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.securityContext) || !has(c.securityContext.procMount) || c.securityContext.procMount == 'Default')",message="spec.podTemplate.initContainers: procMount uncovers the kernel: remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m, m.name == 'operator-workspace' || (!(m.name in ['config', 'shm', 'checkpoints', 'resume', 'checkpoint-credentials', 'resume-credentials', 'tensorboard', 'token', 'tmp']) && !m.name.startsWith('operator-'))))",message="spec.podTemplate.initContainers: mounts a volume of the operator: mount those of spec.volumes, and operator-workspace, only"
	InitContainers []corev1.Container `json:"initContainers,omitempty"`

	// topologySpreadConstraints say how the pods are spread over zones, nodes and other domains, at most 8. One without a labelSelector
	// counts the pods of this job. A queue knows no DoNotSchedule.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// resourceClaims are devices by Dynamic Resource Allocation, at most 8; the claims of spec.resources name those that the program uses.
	// Set gpusPerWorker to 0 where they are its GPUs. A queue knows no resourceClaims.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, has(c.resourceClaimName) != has(c.resourceClaimTemplateName))",message="spec.podTemplate.resourceClaims: an entry names exactly one of resourceClaimName and resourceClaimTemplateName"
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty"`

	// hostAliases are further entries of /etc/hosts, at most 32.
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=32
	HostAliases []corev1.HostAlias `json:"hostAliases,omitempty"`

	// dnsPolicy is ClusterFirst, the default, Default or None. Workers find each other by names of the cluster's DNS.
	// +kubebuilder:validation:Enum=ClusterFirst;Default;None
	DNSPolicy corev1.DNSPolicy `json:"dnsPolicy,omitempty"`

	// dnsConfig adds nameservers, search domains and options.
	DNSConfig *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`

	// runtimeClassName is the RuntimeClass of the pods, as for a sandbox. Default: the container runtime's own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// hostUsers false gives the pods a user namespace of their own, in which even root has no rights on the node.
	// +kubebuilder:validation:XValidation:rule="!self",message="spec.podTemplate.hostUsers: can only be false: remove it to share the user namespace of the node"
	HostUsers *bool `json:"hostUsers,omitempty"`

	// shmSize limits the shared memory in /dev/shm, which counts as memory of the program, above 0. Default: no other limit
	// than that of memory, for workers of TrainingJobs; the container runtime's, usually 64Mi, for all others.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="spec.podTemplate.shmSize: must be above 0: write for example 8Gi"
	ShmSize *resource.Quantity `json:"shmSize,omitempty"`

	// terminationGracePeriodSeconds is the time that a pod has to end when it is told to stop, 1 to 3600. Default 60, and 300 with
	// checkpoints in an object store, for workers of TrainingJobs, which is the least; 330 for the workers of queues, which is
	// the least, too; 60 for AIJobs of the type training, 30 for others.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}
