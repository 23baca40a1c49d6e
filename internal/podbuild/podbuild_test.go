package podbuild

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// operators is a template as a kind builds it.
const operators = `
metadata: {labels: {training-job: a, app: operator}, annotations: {attempt: "1"}}
spec:
  terminationGracePeriodSeconds: 60
  initContainers: [{name: network-preflight, image: operator}]
  containers:
  - name: trainer
    image: program
    volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
`

func read[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &value))
	return value
}

func TestWhatAUserSaysIsAddedToThePods(t *testing.T) {
	for name, test := range map[string]struct{ settings, want string }{
		"nothing":           {"{}", operators},
		"an empty template": {"podTemplate: {}", operators},
		"volumes, variables and a directory": {`
volumes: [{name: data, persistentVolumeClaim: {claimName: mnist}}]
volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
envFrom: [{prefix: S3_, secretRef: {name: store}}]
workingDir: /data`, `
metadata: {labels: {training-job: a, app: operator}, annotations: {attempt: "1"}}
spec:
  terminationGracePeriodSeconds: 60
  initContainers: [{name: network-preflight, image: operator}]
  containers:
  - name: trainer
    image: program
    workingDir: /data
    envFrom: [{prefix: S3_, secretRef: {name: store}}]
    volumeMounts: [{name: shm, mountPath: /dev/shm}, {name: data, mountPath: /data, readOnly: true}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}, {name: data, persistentVolumeClaim: {claimName: mnist}}]`},
		"labels and annotations, and the operator's win": {`
podTemplate: {labels: {team: vision, app: mine}, annotations: {attempt: "9", note: pod}}`, `
metadata: {labels: {training-job: a, app: operator, team: vision}, annotations: {attempt: "1", note: pod}}
spec:
  terminationGracePeriodSeconds: 60
  initContainers: [{name: network-preflight, image: operator}]
  containers: [{name: trainer, image: program, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]`},
		"containers get what restricted asks for, and keep what they say": {`
podTemplate:
  initContainers:
  - {name: prepare, image: tools}
  - name: proxy
    image: proxy
    restartPolicy: Always
    terminationMessagePolicy: File
    securityContext: {runAsUser: 7, capabilities: {drop: [NET_RAW]}}`, `
metadata: {labels: {training-job: a, app: operator}, annotations: {attempt: "1"}}
spec:
  terminationGracePeriodSeconds: 60
  initContainers:
  - {name: network-preflight, image: operator}
  - name: prepare
    image: tools
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  - name: proxy
    image: proxy
    restartPolicy: Always
    terminationMessagePolicy: File
    securityContext: {runAsUser: 7, allowPrivilegeEscalation: false, capabilities: {drop: [NET_RAW]}}
  containers: [{name: trainer, image: program, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]`},
		"placing, devices, names and sandboxes": {`
podTemplate:
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}
  - {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {team: vision}}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [store]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.2]}
  runtimeClassName: gvisor
  hostUsers: false`, `
metadata: {labels: {training-job: a, app: operator}, annotations: {attempt: "1"}}
spec:
  terminationGracePeriodSeconds: 60
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {training-job: a}}}
  - {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {team: vision}}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [store]}]
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.2]}
  runtimeClassName: gvisor
  hostUsers: false
  initContainers: [{name: network-preflight, image: operator}]
  containers: [{name: trainer, image: program, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]`},
		"a size of the shared memory": {"podTemplate: {shmSize: 2Gi}", `
metadata: {labels: {training-job: a, app: operator}, annotations: {attempt: "1"}}
spec:
  terminationGracePeriodSeconds: 60
  initContainers: [{name: network-preflight, image: operator}]
  containers: [{name: trainer, image: program, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			template := read[corev1.PodTemplateSpec](t, operators)
			settings := read[podtemplate.Settings](t, test.settings)
			before := settings.DeepCopy()
			Add(&template, &settings, map[string]string{"training-job": "a"})
			assert.Empty(t, cmp.Diff(read[corev1.PodTemplateSpec](t, test.want), template))
			assert.Empty(t, cmp.Diff(*before, settings), "the spec belongs to the cache")
		})
	}
}

func TestPodsWithoutSharedMemoryGetOne(t *testing.T) {
	template := read[corev1.PodTemplateSpec](t, `spec: {containers: [{name: job}]}`)
	Add(&template, ptr.To(read[podtemplate.Settings](t, "podTemplate: {shmSize: 64Mi}")), nil)
	assert.Empty(t, cmp.Diff(read[corev1.PodTemplateSpec](t, `
spec:
  containers: [{name: job, volumeMounts: [{name: shm, mountPath: /dev/shm}]}]
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 64Mi}}]`), template))
}

func TestTheGracePeriodIsAtLeastWhatTheOperatorNeeds(t *testing.T) {
	assert.EqualValues(t, 60, GracePeriod(&podtemplate.Settings{}, 60))
	assert.EqualValues(t, 60, GracePeriod(ptr.To(read[podtemplate.Settings](t, "podTemplate: {terminationGracePeriodSeconds: 5}")), 60))
	assert.EqualValues(t, 600, GracePeriod(ptr.To(read[podtemplate.Settings](t, "podTemplate: {terminationGracePeriodSeconds: 600}")), 60))
}

// As kube-scheduler counts: sidecars beside the program, init containers before it.
func TestWhatAPodRequestsWithItsInitContainers(t *testing.T) {
	program := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("2")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("1")},
	}
	for name, test := range map[string]struct {
		settings string
		want     map[corev1.ResourceName]string
	}{
		"the program alone": {"{}", map[corev1.ResourceName]string{"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}},
		"a sidecar": {"podTemplate: {initContainers: [{name: proxy, restartPolicy: Always, resources: {requests: {cpu: 500m}, limits: {memory: 512Mi}}}]}",
			map[corev1.ResourceName]string{"cpu": "2500m", "memory": "1536Mi", "nvidia.com/gpu": "1"}},
		"a small init container": {"podTemplate: {initContainers: [{name: prepare, resources: {requests: {cpu: 1}}}]}",
			map[corev1.ResourceName]string{"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}},
		"a large one": {"podTemplate: {initContainers: [{name: prepare, resources: {requests: {cpu: 3, memory: 4Gi}}}]}",
			map[corev1.ResourceName]string{"cpu": "3", "memory": "4Gi", "nvidia.com/gpu": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[corev1.ResourceName]string{}
			for name, quantity := range Requests(ptr.To(read[podtemplate.Settings](t, test.settings)), nil, program) {
				got[name] = quantity.String()
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestConflicts(t *testing.T) {
	const volumes = "volumes: [{name: data, emptyDir: {}}]\n"
	for name, test := range map[string]struct{ settings, resources, want string }{
		"nothing":             {"{}", "{}", ""},
		"a mount of a volume": {volumes + "volumeMounts: [{name: data, mountPath: /data}]", "{}", ""},
		"a mount of no volume": {volumes + "volumeMounts: [{name: data, mountPath: /data}, {name: dat, mountPath: /d}]", "{}",
			"spec.volumeMounts[1].name: spec.volumes has no volume dat: add it, or correct the name"},
		"an init container's mount of no volume": {"podTemplate: {initContainers: [{name: a}, {name: b, volumeMounts: [{name: data, mountPath: /data}]}]}", "{}",
			"spec.podTemplate.initContainers[1].volumeMounts[0].name: spec.volumes has no volume data: add it, or correct the name"},
		"shared memory beyond the limit": {"podTemplate: {shmSize: 64Gi}", "limits: {memory: 32Gi}",
			"spec.podTemplate.shmSize: 64Gi is more than the memory limit 32Gi, which it counts against: lower it"},
		"shared memory without a limit": {"podTemplate: {shmSize: 64Gi}", "{}", ""},
		"shared memory of the limit":    {"podTemplate: {shmSize: 32Gi}", "limits: {memory: 32Gi}", ""},
		"a claim that is there":         {"podTemplate: {resourceClaims: [{name: gpu, resourceClaimName: g}]}", "claims: [{name: gpu}]", ""},
		"a claim that is not there": {"podTemplate: {resourceClaims: [{name: gpus, resourceClaimName: g}]}", "claims: [{name: gpu}]",
			"spec.resources.claims: gpu is not in spec.podTemplate.resourceClaims: add it, or correct the name"},
		"a claim without any": {"{}", "claims: [{name: gpu}]",
			"spec.resources.claims: gpu is not in spec.podTemplate.resourceClaims: add it, or correct the name"},
		"a grace period that is too short": {"podTemplate: {terminationGracePeriodSeconds: 30}", "{}",
			"spec.podTemplate.terminationGracePeriodSeconds: 30 is less than the 60 that a last checkpoint may take: raise it, or remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			resources := read[corev1.ResourceRequirements](t, test.resources)
			field, message := Conflict(ptr.To(read[podtemplate.Settings](t, test.settings)), nil, &resources, 60)
			if field != "" {
				message = field + ": " + message
			}
			assert.Equal(t, test.want, message)
		})
	}
}

func TestAPodIsBoundToNodesAndKeepsWhatItRequires(t *testing.T) {
	pod := corev1.PodSpec{}
	PlaceOn(&pod, "n1")
	on := func(node string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	}
	terms := func() []corev1.NodeSelectorTerm {
		return pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{on("n1")}}}, terms())

	zone := []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}
	users := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: zone}},
	}}}
	pod.Affinity = users.DeepCopy()
	given := pod.Affinity
	PlaceOn(&pod, "n1", "n2")
	assert.Equal(t, []corev1.NodeSelectorTerm{
		{MatchExpressions: zone, MatchFields: []corev1.NodeSelectorRequirement{on("n1")}},
		{MatchExpressions: zone, MatchFields: []corev1.NodeSelectorRequirement{on("n2")}},
	}, terms())
	assert.Empty(t, cmp.Diff(users, given), "the spec belongs to the cache")
}
