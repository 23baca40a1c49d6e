package api_test

import (
	"strings"
	"testing"
)

const spotInstanceVM = `
apiVersion: training.training.dcnlab.com/v1alpha1
kind: SpotInstanceVM
metadata:
  name: good
spec:
  vmImage: projects/my-project/global/images/family/gpu-node
  gcp:
    project: my-project
    zone: us-central1-a
    machineType: n1-standard-8
`

const spotInstanceJob = `
apiVersion: training.training.dcnlab.com/v1alpha1
kind: SpotInstanceJob
metadata:
  name: good
spec:
  checkpointConfig:
    checkpointImageRepo: registry.example.com:5000/team/checkpoints
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: train
            image: train:v1
`

func TestSpotInstanceVMRejections(t *testing.T) {
	testRejections(t, spotInstanceVM, []rejection{
		{"a name that is too long", `metadata: {name: ` + strings.Repeat("a", 41) + `}`, "spec", "choose a shorter or simpler name"},
		{"no image", `spec: {vmImage: null}`, "spec.vmImage", "Required value"},
		{"an image without project", `spec: {vmImage: debian-12}`, "spec.vmImage", "write projects/<project>/global/images/<image>"},
		{"no provider", `spec: {gcp: null}`, "spec.gcp", "Required value"},
		{"no project", `spec: {gcp: {project: null}}`, "spec.gcp.project", "Required value"},
		{"a project in capitals", `spec: {gcp: {project: MyProject}}`, "spec.gcp.project", "should match"},
		{"no zone", `spec: {gcp: {zone: null}}`, "spec.gcp.zone", "name the zone to try first"},
		{"a region as zone", `spec: {gcp: {zone: us-central1}}`, "spec.gcp.zone", "should match"},
		{"a zone twice", `spec: {gcp: {zones: [us-central1-b, us-central1-b]}}`, "spec.gcp.zones", "remove the second"},
		{"another zone's region", `spec: {gcp: {region: europe-west4}}`, "spec.gcp.region", "is not the region of zone us-central1-a: correct it, or remove it"},
		{"no machine type", `spec: {gcp: {machineType: null}}`, "spec.gcp.machineType", "Required value"},
		{"the machine type twice", `spec: {gcp: {machineType: n1-standard-8, machineTypes: [n1-standard-8]}}`, "spec.gcp.machineTypes", "which is spec.gcp.machineType: remove it"},
		{"another machine type twice", `spec: {gcp: {machineTypes: [n2-standard-8, n2-standard-8]}}`, "spec.gcp.machineTypes", "remove the second"},
		{"a machine type that is none", `spec: {gcp: {machineTypes: [large]}}`, "spec.gcp.machineTypes[0]", "should match"},
		{"a price for a machine type that is never used", `spec: {prices: [{machineType: a2-highgpu-1g, perHour: "1"}]}`, "spec.prices", "correct the machine type, or remove the price"},
		{"two prices for one machine type", `spec: {gcp: {machineTypes: [n2-standard-96]}, prices: [{machineType: n2-standard-96, perHour: "1"}, {machineType: n2-standard-96, perHour: "2"}]}`, "spec.prices", "remove one of them"},
		{"a disk that is too small", `spec: {gcp: {diskSizeGB: 5}}`, "spec.gcp.diskSizeGB", "should be greater than or equal to 10"},
		{"an unknown kind of disk", `spec: {gcp: {diskType: ssd}}`, "spec.gcp.diskType", "should match"},
		{"a network tag in capitals", `spec: {gcp: {networkTags: [K8S]}}`, "spec.gcp.networkTags[0]", "should match"},
		{"a service account that is no address", `spec: {gcp: {serviceAccount: node}}`, "spec.gcp.serviceAccount", "should match"},
		{"a subnetwork without network", `spec: {gcp: {subnetwork: training}}`, "spec.gcp.network", "name the network that holds it"},
		{"credentials without Secret", `spec: {gcp: {credentialsSecretRef: {}}}`, "spec.gcp.credentialsSecretRef.name", "Required value"},
		{"a GPU without type", `spec: {gpu: {count: 1}}`, "spec.gpu.type", "Required value"},
		{"no GPU", `spec: {gpu: {type: nvidia-tesla-t4, count: 0}}`, "spec.gpu.count", "should be greater than or equal to 1"},
		{"no instance", `spec: {maxInstances: 0}`, "spec.maxInstances", "should be greater than or equal to 1"},
		{"an unknown provisioning model", `spec: {provisioningModel: PREEMPTIBLE}`, "spec.provisioningModel", `supported values: "SPOT", "STANDARD"`},
		{"a fallback of the fallback", `spec: {provisioningModel: STANDARD, allowStandardFallback: true}`, "spec.allowStandardFallback", "remove it, or set provisioningModel to SPOT"},
		{"a certificate hash that is too short", `spec: {kubeadmJoinConfig: {caCertHash: "sha256:abc123"}}`, "spec.kubeadmJoinConfig.caCertHash", "kubeadm token create --print-join-command"},
		{"an endpoint with scheme", `spec: {kubeadmJoinConfig: {controlPlaneEndpoint: "https://10.0.0.2:6443"}}`, "spec.kubeadmJoinConfig.controlPlaneEndpoint", "write for example 10.0.0.2:6443, without https://"},
		{"an endpoint without port", `spec: {kubeadmJoinConfig: {controlPlaneEndpoint: 10.0.0.2}}`, "spec.kubeadmJoinConfig.controlPlaneEndpoint", "is not host:port"},
		{"an unknown way to join", `spec: {kubeadmJoinConfig: {method: cloud-init}}`, "spec.kubeadmJoinConfig.method", `supported values: "StartupScript", "SSH"`},
		{"SSH settings without SSH", `spec: {kubeadmJoinConfig: {ssh: {user: admin}}}`, "spec.kubeadmJoinConfig.ssh", "set method to SSH or remove ssh"},
		{"no time to join", `spec: {joinTimeout: 10s}`, "spec.joinTimeout", "choose a time between"},
		{"an idle time in days", `spec: {idleTimeout: 1d}`, "spec.idleTimeout", "(ms|s|m|h)"},
		{"an idle time without end", `spec: {idleTimeout: 9999h}`, "spec.idleTimeout", "choose less"},
		{"a startup script above 64 KiB", `spec: {startupScript: ` + strings.Repeat("x", 65537) + `}`, "spec.startupScript", "may not be more than 65536 bytes"},
		{"a price that is no number", `spec: {prices: [{perHour: "0,35"}]}`, "spec.prices[0].perHour", "[0-9]{1,6}"},
		{"a price for nothing", `spec: {prices: [{zone: us-central1-a}]}`, "spec.prices[0].perHour", "Required value"},
		{"a price for a zone that is never used", `spec: {prices: [{zone: us-east1-b, perHour: "0.35"}]}`, "spec.prices", "correct the zone, or remove the price"},
		{"two prices for one zone", `spec: {prices: [{zone: us-central1-a, perHour: "0.35"}, {zone: us-central1-a, provisioningModel: SPOT, perHour: "0.4"}]}`, "spec.prices", "remove one of them"},
		{"a currency that is none", `spec: {priceCurrency: euro}`, "spec.priceCurrency", "Too long"},
		{"a misspelled field", `spec: {gcp: {machinetype: n1-standard-8}}`, "spec.gcp.machinetype", "unknown field"},
	})
}

func TestSpotInstanceJobRejections(t *testing.T) {
	testRejections(t, spotInstanceJob, []rejection{
		{"a name that is too long", `metadata: {name: ` + strings.Repeat("a", 51) + `}`, "spec", "choose a shorter or simpler name"},
		{"no replica", `spec: {replicas: 0}`, "spec.replicas", "should be greater than or equal to 1"},
		{"17 replicas", `spec: {replicas: 17}`, "spec.replicas", "should be less than or equal to 16"},
		{"no template", `spec: {jobTemplate: null}`, "spec.jobTemplate", "Required value"},
		{"an empty template", `spec: {jobTemplate: {spec: null}}`, "spec.jobTemplate", "describe the pod, with at least one container"},
		{"no restart policy", `spec: {jobTemplate: {spec: {template: {spec: {restartPolicy: null}}}}}`, "spec.jobTemplate.spec.template.spec.restartPolicy", "set it to Never"},
		{"restarting always", `spec: {jobTemplate: {spec: {template: {spec: {restartPolicy: Always}}}}}`, "spec.jobTemplate.spec.template.spec.restartPolicy", "set it to Never"},
		{"no container", `spec: {jobTemplate: {spec: {template: {spec: {containers: []}}}}}`, "spec.jobTemplate.spec.template.spec.containers", "add the container to run"},
		{"a container without name", `spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: i}]}}}}}`, "spec.jobTemplate.spec.template.spec.containers[0].name", "Required value"},
		{"a misspelled field of a container", `spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: i, comand: [x]}]}}}}}`, "spec.jobTemplate.spec.template.spec.containers[0].comand", "unknown field"},
		{"a misspelled field of a pod", `spec: {jobTemplate: {spec: {template: {spec: {toleration: []}}}}}`, "spec.jobTemplate.spec.template.spec.toleration", "unknown field"},
		{"a selector", `spec: {jobTemplate: {spec: {selector: {matchLabels: {a: b}}}}}`, "spec.jobTemplate.spec.selector", "remove both"},
		{"checkpoints without repository", `spec: {checkpointConfig: {checkpointImageRepo: null}}`, "spec.checkpointConfig.checkpointImageRepo", "Required value"},
		{"a repository without registry", `spec: {checkpointConfig: {checkpointImageRepo: checkpoints}}`, "spec.checkpointConfig.checkpointImageRepo", "write for example registry.example.com/team/checkpoints"},
		{"a repository with tag", `spec: {checkpointConfig: {checkpointImageRepo: "registry.example.com/a:v1"}}`, "spec.checkpointConfig.checkpointImageRepo", "without a tag"},
		{"a checkpoint every second", `spec: {checkpointConfig: {checkpointInterval: 1s}}`, "spec.checkpointConfig.checkpointInterval", "choose a time between"},
		{"an interval in minutes without unit", `spec: {checkpointConfig: {checkpointInterval: 30}}`, "spec.checkpointConfig.checkpointInterval", "must be of type string"},
		{"no checkpoint to keep", `spec: {checkpointConfig: {retention: 0}}`, "spec.checkpointConfig.retention", "should be greater than or equal to 1"},
		{"an unknown storage", `spec: {checkpointConfig: {checkpointStorage: {type: ftp, bucket: abc}}}`, "spec.checkpointConfig.checkpointStorage.type", `supported values: "gcs", "s3", "azure"`},
		{"storage without bucket", `spec: {checkpointConfig: {checkpointStorage: {type: gcs}}}`, "spec.checkpointConfig.checkpointStorage.bucket", "Required value"},
		{"a VM without name", `spec: {spotInstanceVMRef: {}}`, "spec.spotInstanceVMRef.name", "Required value"},
		{"a VM in another namespace", `spec: {spotInstanceVMRef: {name: a, namespace: b}}`, "spec.spotInstanceVMRef.namespace", "unknown field"},
		{"credentials without Secret", `spec: {gcpCredentialsSecretRef: {namespace: a}}`, "spec.gcpCredentialsSecretRef.name", "Required value"},
		{"a Secret in capitals", `spec: {gcpCredentialsSecretRef: {name: GCP}}`, "spec.gcpCredentialsSecretRef.name", "should match"},
	})
}
