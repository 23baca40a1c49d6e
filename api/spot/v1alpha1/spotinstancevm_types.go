package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SpotInstanceVM describes spot instances that the operator may create as nodes of this cluster when jobs that name it
// find no room, and deletes when they are no longer needed.
//
// The name is at most 40 characters and a DNS label that starts with a letter, because it prefixes the names of the
// instances.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=spotinstancevms,singular=spotinstancevm,shortName=sivm,categories=ml
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.gcp.machineType`,description="Machine type of the instances"
// +kubebuilder:printcolumn:name="GPU",type=string,JSONPath=`.spec.gpu.type`,description="Type of the GPUs"
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.status.instances`,description="Instances that exist"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.readyInstances`,description="Instances that are ready nodes"
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxInstances`,description="Instances that may exist at a time"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether instances are available"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Zone",type=string,priority=1,JSONPath=`.spec.gcp.zone`,description="Zone that is tried first"
// +kubebuilder:printcolumn:name="Model",type=string,priority=1,JSONPath=`.spec.provisioningModel`,description="Provisioning model"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 40 characters of a-z, 0-9 and '-', starting with a letter and ending with a letter or digit, because it prefixes the names of instances: choose a shorter or simpler name"
// +operator-sdk:csv:customresourcedefinitions:displayName="Spot Instance VM",order=3,resources={{Node,v1},{Secret,v1}}
type SpotInstanceVM struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec describes the instances. Except for gcp.project it can be changed; instances that exist stay as they are.
	// +required
	Spec SpotInstanceVMSpec `json:"spec,omitzero"`

	// status is what the operator observed. It is written by the operator only.
	Status SpotInstanceVMStatus `json:"status,omitzero"`
}

// SpotInstanceVMList is a list of SpotInstanceVMs.
//
// +kubebuilder:object:root=true
type SpotInstanceVMList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the SpotInstanceVMs.
	// +required
	Items []SpotInstanceVM `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (v *SpotInstanceVM) StatusConditions() *[]metav1.Condition { return &v.Status.Conditions }

// SpotInstanceVMSpec describes spot instances and how they join the cluster.
//
// +kubebuilder:validation:XValidation:rule="!self.allowStandardFallback || self.provisioningModel == 'SPOT'",fieldPath=".allowStandardFallback",message="spec.allowStandardFallback: has no use when provisioningModel is STANDARD: remove it, or set provisioningModel to SPOT"
// +kubebuilder:validation:XValidation:rule="!has(self.prices) || self.prices.all(p, !has(p.zone) || (has(self.gcp.zone) && self.gcp.zone == p.zone) || (has(self.gcp.zones) && p.zone in self.gcp.zones))",fieldPath=".prices",message="spec.prices: has a price for a zone that is neither spec.gcp.zone nor in spec.gcp.zones: correct the zone, or remove the price"
// +kubebuilder:validation:XValidation:rule="!has(self.prices) || self.prices.all(p, !has(p.machineType) || self.gcp.machineType == p.machineType || (has(self.gcp.machineTypes) && p.machineType in self.gcp.machineTypes))",fieldPath=".prices",message="spec.prices: has a price for a machine type that is neither spec.gcp.machineType nor in spec.gcp.machineTypes: correct the machine type, or remove the price"
type SpotInstanceVMSpec struct {
	// vmImage is the boot image of the instances, as projects/<project>/global/images/<image> or, for the newest of a
	// family, projects/<project>/global/images/family/<family>. It must bring kubelet, kubeadm and a container runtime
	// unless startupScript installs them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https://(www|compute)[.]googleapis[.]com/compute/v1/)?projects/[a-z][a-z0-9.:-]*/global/images/(family/)?[a-z][a-z0-9-]*$')",messageExpression="\"spec.vmImage: '\" + self + \"' is no image of Compute Engine: write projects/<project>/global/images/<image> or projects/<project>/global/images/family/<family>\""
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Boot image",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	VMImage string `json:"vmImage,omitempty"`

	// gpu are the GPUs attached to each instance. Default: those of the machine type, if any.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="GPUs"
	GPU *GPU `json:"gpu,omitempty"`

	// gcp says where on Google Cloud the instances are created, and of what size.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Google Cloud"
	GCP GCP `json:"gcp,omitzero"`

	// maxInstances is the number of instances that may exist at a time, 1 to 1000. Default 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=10,displayName="Instances at most",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	MaxInstances int32 `json:"maxInstances,omitempty"`

	// provisioningModel is SPOT, the default, for instances that the provider may take back at any time, or STANDARD
	// for instances at full price.
	// +kubebuilder:default=SPOT
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=11,displayName="Provisioning model",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:SPOT","urn:alm:descriptor:com.tectonic.ui:select:STANDARD"}
	ProvisioningModel ProvisioningModel `json:"provisioningModel,omitempty"`

	// allowStandardFallback creates an instance at full price when no zone has a spot instance to give. Default false.
	// +kubebuilder:default=false
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=12,displayName="Pay the full price when there is no spot instance",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	AllowStandardFallback *bool `json:"allowStandardFallback,omitempty"`

	// startupScript runs on each instance at its first start, before it joins the cluster. At most 64 KiB. It is stored
	// in the clear: keep secrets out of it.
	// +kubebuilder:validation:MaxLength=65536
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=13,displayName="Startup script",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	StartupScript string `json:"startupScript,omitempty"`

	// kubeadmJoinConfig says how an instance becomes a node. Default: a bootstrap token that the operator makes for
	// each instance and revokes afterwards, used by a startup script.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=14,displayName="Joining the cluster",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	KubeadmJoinConfig KubeadmJoinConfig `json:"kubeadmJoinConfig,omitzero"`

	// joinTimeout is the time from an instance's creation within which its node must be Ready and show its GPUs, 1m to
	// 24h; after it the instance is deleted and another one tried. Default 15m.
	// +kubebuilder:default="15m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="spec.joinTimeout: is less than 1m or more than 24h: choose a time between, in which an instance surely starts"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=15,displayName="Time to join",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:advanced"}
	JoinTimeout metav1.Duration `json:"joinTimeout,omitzero"`

	// idleTimeout is the time without a pod of a job after which an instance is deleted, 0s (at once) to 168h.
	// Default 10m.
	// +kubebuilder:default="10m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('168h')",message="spec.idleTimeout: is more than 168h: choose less, or run STANDARD instances outside of the operator"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=16,displayName="Time without work before deletion",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:advanced"}
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// prices are what an instance costs in the zones, at most 64, each zone, machine type and provisioning model once. They order the
	// zones together with how often these take instances back, choose among gcp.machineTypes, and are written onto the nodes, from where the
	// cost of jobs is worked out. Default: prices are not known, and all zones are taken to cost the same.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(other, (has(other.zone) ? other.zone : '') == (has(p.zone) ? p.zone : '') && (has(other.machineType) ? other.machineType : '') == (has(p.machineType) ? p.machineType : '') && other.provisioningModel == p.provisioningModel))",message="spec.prices: has two prices for one zone, machineType and provisioningModel: remove one of them"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=17,displayName="Prices of an instance",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Prices []Price `json:"prices,omitempty"`

	// priceCurrency of all prices, three letters, for example EUR. Default USD.
	// +kubebuilder:default=USD
	// +kubebuilder:validation:MaxLength=3
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=18,displayName="Currency of the prices",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:advanced"}
	PriceCurrency string `json:"priceCurrency,omitempty"`
}

// ProvisioningModel is the price model of an instance, in the words of Compute Engine.
// +kubebuilder:validation:Enum=SPOT;STANDARD
type ProvisioningModel string

// The provisioning models.
const (
	// ProvisioningSpot is cheap and can be taken back at any time.
	ProvisioningSpot ProvisioningModel = "SPOT"
	// ProvisioningStandard is at full price and stays.
	ProvisioningStandard ProvisioningModel = "STANDARD"
)

// GPU says which GPUs are attached to an instance.
type GPU struct {
	// type of accelerator in the provider's words, for example nvidia-tesla-t4.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Type of GPU",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gpu"}
	Type string `json:"type,omitempty"`

	// count of GPUs of each instance, 1 to 16.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="GPUs of each instance",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gpu"}
	Count int32 `json:"count,omitempty"`
}

// GCP says where on Google Cloud instances are created, and of what size.
//
// +kubebuilder:validation:XValidation:rule="has(self.zone) || has(self.zones)",fieldPath=".zone",message="spec.gcp.zone: is required: name the zone to try first, for example us-central1-a"
// +kubebuilder:validation:XValidation:rule="!has(self.region) || !has(self.zone) || self.zone.startsWith(self.region + '-')",fieldPath=".region",messageExpression="'spec.gcp.region: ' + self.region + ' is not the region of zone ' + self.zone + ': correct it, or remove it, the zone says it already'"
// +kubebuilder:validation:XValidation:rule="!has(self.machineTypes) || !(self.machineType in self.machineTypes)",fieldPath=".machineTypes",messageExpression="'spec.gcp.machineTypes: names ' + self.machineType + ', which is spec.gcp.machineType: remove it'"
// +kubebuilder:validation:XValidation:rule="!has(self.subnetwork) || has(self.network)",fieldPath=".network",message="spec.gcp.network: is required when subnetwork is set: name the network that holds it"
type GCP struct {
	// project is the id of the project that holds the instances. It cannot be changed, because instances in the old
	// project would be lost from sight.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9.-]+:)?[a-z][-a-z0-9]*[a-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.gcp.project: is immutable: create another SpotInstanceVM for the other project"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Project",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gcp"}
	Project string `json:"project,omitempty"`

	// zone is where an instance is tried first, for example us-central1-a.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]+-[a-z]+[0-9]+-[a-z]$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Zone to try first",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gcp"}
	Zone string `json:"zone,omitempty"`

	// zones are tried after zone, in this order, when a zone has no instance to give or the quota is used up. At most
	// 16, each once.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z]+-[a-z]+[0-9]+-[a-z]$`
	// +kubebuilder:validation:XValidation:rule="self.all(z, self.exists_one(other, other == z))",message="spec.gcp.zones: names a zone twice: remove the second"
	Zones []string `json:"zones,omitempty"`

	// region of the zone. Default: what the zone says. It is kept for manifests that name it.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]+-[a-z]+[0-9]+$`
	Region string `json:"region,omitempty"`

	// machineType of the instances, for example n1-standard-4, and the first of them when machineTypes names others.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*(-[a-z0-9]+)+$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8,displayName="Machine type",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gcp"}
	MachineType string `json:"machineType,omitempty"`

	// machineTypes are others that an instance may have. For pods that wait for instances the operator chooses the type that has room for most
	// of them, then one that a zone was not out of lately, then, where prices are known for both, the cheaper one by price and
	// preemptions so far, and else the first, which is machineType. At most 8, each once. Default: machineType only.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z][a-z0-9]*(-[a-z0-9]+)+$`
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(other, other == t))",message="spec.gcp.machineTypes: names a machine type twice: remove the second"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=19,displayName="Other machine types",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:advanced"}
	MachineTypes []string `json:"machineTypes,omitempty"`

	// diskSizeGB is the size of the boot disk in GB, 10 to 65536. Default 100.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=65536
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9,displayName="Boot disk in GB",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gcp"}
	DiskSizeGB int32 `json:"diskSizeGB,omitempty"`

	// diskType of the boot disk, for example pd-ssd or hyperdisk-balanced. Default pd-standard.
	// +kubebuilder:default=pd-standard
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(pd|hyperdisk)(-[a-z]+)+$`
	DiskType string `json:"diskType,omitempty"`

	// network is the VPC network of the instances. Default: the network named default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Network string `json:"network,omitempty"`

	// subnetwork of network, in the region of the zones. Default: the one that the network has there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Subnetwork string `json:"subnetwork,omitempty"`

	// networkTags put the instances under the firewall rules for these tags. At most 64.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	NetworkTags []string `json:"networkTags,omitempty"`

	// serviceAccount is the e-mail address of the service account as which programs on the instances act. Default:
	// none, so that they can do nothing in the project.
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:Pattern=`^[^@\s]+@[^@\s]+\.[a-z]+$`
	ServiceAccount string `json:"serviceAccount,omitempty"`

	// credentialsSecretRef names the Secret whose key credentials.json holds the service account key with which the
	// operator creates and deletes the instances. Default: the gcpCredentialsSecretRef of the job, else the operator's
	// own identity, where an annotation of the namespace allows this use of it.
	CredentialsSecretRef *SecretReference `json:"credentialsSecretRef,omitempty"`
}

// AllMachineTypes are machineType and machineTypes: those that an instance may have, in this order.
func (g *GCP) AllMachineTypes() []string { return append([]string{g.MachineType}, g.MachineTypes...) }

// KubeadmJoinConfig says how an instance becomes a node of this cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ssh) || self.method == 'SSH'",fieldPath=".ssh",messageExpression="'spec.kubeadmJoinConfig.ssh: has no use with method ' + self.method + ': set method to SSH or remove ssh'"
type KubeadmJoinConfig struct {
	// method is StartupScript, the default, when the instance runs kubeadm join by itself at its first start, or SSH
	// when the operator logs in and runs it.
	// +kubebuilder:default=StartupScript
	Method JoinMethod `json:"method,omitempty"`

	// tokenSecretRef is the name of a Secret in the namespace of the SpotInstanceVM with the keys token and, unless they
	// are given here, ca-cert-hash and control-plane-endpoint. Default: the operator makes a token for each instance
	// and revokes it once the node has joined.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	TokenSecretRef string `json:"tokenSecretRef,omitempty"`

	// caCertHash is the hash of the cluster's root certificate, as sha256: and 64 hexadecimal digits, by which an
	// instance knows the right cluster. Default: that of the Secret, else of this cluster.
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="spec.kubeadmJoinConfig.caCertHash: is not sha256: followed by 64 hexadecimal digits: take it from the output of kubeadm token create --print-join-command"
	CACertHash string `json:"caCertHash,omitempty"`

	// controlPlaneEndpoint is the host and port of the API server as an instance reaches it, for example
	// 10.0.0.2:6443. Default: that of the Secret, else of the cluster-info ConfigMap.
	// +kubebuilder:validation:MaxLength=261
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9.-]+|[[][0-9A-Fa-f:.]+[]]):[0-9]{1,5}$')",messageExpression="\"spec.kubeadmJoinConfig.controlPlaneEndpoint: '\" + self + \"' is not host:port: write for example 10.0.0.2:6443, without https://\""
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint,omitempty"`

	// ssh says how the operator logs in for method SSH. Default: user spot at port 22 with a key pair that the operator
	// makes for each instance.
	SSH *SSH `json:"ssh,omitempty"`
}

// JoinMethod is a way to run kubeadm join.
// +kubebuilder:validation:Enum=StartupScript;SSH
type JoinMethod string

// The join methods.
const (
	// JoinByStartupScript lets the instance join by itself.
	JoinByStartupScript JoinMethod = "StartupScript"
	// JoinBySSH lets the operator log in and join it.
	JoinBySSH JoinMethod = "SSH"
)

// SSH says how the operator logs in to an instance. The instance's host key is checked against the one that it
// publishes as a guest attribute.
type SSH struct {
	// user to log in as; it must be allowed to run sudo without a password. Default spot.
	// +kubebuilder:default=spot
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	User string `json:"user,omitempty"`

	// port of the SSH server, 1 to 65535. Default 22.
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// privateKeySecretRef names the Secret whose key ssh-privatekey holds the key to log in with. Default: one that the
	// operator makes.
	PrivateKeySecretRef *SecretReference `json:"privateKeySecretRef,omitempty"`
}
