package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// podSettings are what every kind with pods takes of them.
const podSettings = `
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: mnist}}
  - {name: code, configMap: {name: scripts}}
  - {name: keys, projected: {sources: [{secret: {name: keys}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}
  - {name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  - {name: cache, emptyDir: {sizeLimit: 1Gi}}
  - {name: share, nfs: {server: nfs.example.com, path: /data}}
  - {name: model, image: {reference: "registry.example.com/model:v1"}}
  - {name: secrets, csi: {driver: secrets-store.csi.k8s.io, readOnly: true, volumeAttributes: {secretProviderClass: s}}}
  volumeMounts:
  - {name: data, mountPath: /data, readOnly: true}
  - {name: code, mountPath: /workspace/code, subPath: train}
  - {name: data, mountPath: /checkpointed}
  envFrom: [{prefix: S3_, secretRef: {name: store}}, {configMapRef: {name: settings, optional: true}}]
  workingDir: /workspace/code
  podTemplate:
    labels: {team: vision}
    annotations: {sidecar.example.com/inject: "false", kueue.x-k8s.io/podset-required-topology: rack}
    initContainers:
    - {name: prepare, image: tools, command: [sh, -c, unpack], volumeMounts: [{name: data, mountPath: /data}], env: [{name: A, value: b}]}
    - {name: proxy, image: proxy, restartPolicy: Always, resources: {requests: {cpu: 100m}}, securityContext: {runAsUser: 7},
       startupProbe: {tcpSocket: {port: 5432}}}
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]
    hostAliases: [{ip: 10.0.0.1, hostnames: [store]}]
    dnsPolicy: None
    dnsConfig: {nameservers: [10.0.0.2], options: [{name: ndots, value: "2"}]}
    runtimeClassName: gvisor
    hostUsers: false
    shmSize: 8Gi
    terminationGracePeriodSeconds: 600
`

// kindsWithPods are objects of the kinds that take settings of pods, and the field of the settings.
func kindsWithPods() map[string]struct{ object, field string } {
	return map[string]struct{ object, field string }{
		"TrainingJob": {trainingJob, "spec"}, "AIJob": {aiJob, "spec"}, "Agent": {agent, "spec"}, "AIJobQueue": {aiJobQueue, "spec.workers"},
	}
}

// under puts settings into the field of a kind.
func under(field, settings string) string {
	if field == "spec" {
		return "spec:\n" + settings
	}
	return "spec:\n  workers:\n    namespace: default\n" + strings.ReplaceAll("\n"+settings, "\n", "\n  ")
}

func TestPodSettingsAreAccepted(t *testing.T) {
	for kind, of := range kindsWithPods() {
		t.Run(kind, func(t *testing.T) {
			settings := podSettings
			good := with(t, object(t, of.object), under(of.field, settings))
			good.SetName("with-pod-settings")
			require.NoError(t, k8s.Create(t.Context(), good, strictly...))
		})
	}
}

// Each mistake is refused in the same words in every kind, which name the field and say what to do.
func TestPodSettingsRejections(t *testing.T) {
	tests := []rejection{
		{"a hostPath", `volumes: [{name: a, hostPath: {path: /}}]`, "volumes", "a hostPath opens the node to the job: use a claim, or another source"},
		{"a volume without source", `volumes: [{name: a}]`, "volumes", "a volume has exactly one source: configMap, secret, projected, "},
		{"a volume with two sources", `volumes: [{name: a, emptyDir: {}, nfs: {server: s, path: /}}]`, "volumes", "a volume has exactly one source: "},
		{"a volume of an old kind", `volumes: [{name: a, awsElasticBlockStore: {volumeID: v}}]`, "volumes[0].awsElasticBlockStore", "unknown field"},
		{"a volume of the operator's name", `volumes: [{name: checkpoints, emptyDir: {}}]`, "volumes", "are names of the operator: choose another"},
		{"a volume of a name that the operator may use", `volumes: [{name: operator-x, emptyDir: {}}]`, "volumes", "operator-* are names of the operator"},
		{"a volume twice", `volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]`, "volumes[1]", "Duplicate value"},
		{"33 volumes", `volumes: [` + repeat("{name: a%d, emptyDir: {}},", 33) + `]`, "volumes", "must have at most 32 items"},
		{"a mount among the operator's paths", `volumeMounts: [{name: a, mountPath: /checkpoints/x}]`, "volumeMounts", "are paths of the operator: choose another"},
		{"a mount at the operator's path", `volumeMounts: [{name: a, mountPath: /dev/shm}]`, "volumeMounts", "/dev, /proc, /sys"},
		{"a mount over everything", `volumeMounts: [{name: a, mountPath: /}]`, "volumeMounts", "/, /checkpoints, /resume"},
		{"a mount that goes around", `volumeMounts: [{name: a, mountPath: /data/../checkpoints}]`, "volumeMounts", "has a part that is empty, . or ..: write the path without it"},
		{"a mount with two slashes", `volumeMounts: [{name: a, mountPath: //checkpoints}]`, "volumeMounts", "has a part that is empty, . or .."},
		{"a mount at a relative path", `volumeMounts: [{name: a, mountPath: data}]`, "volumeMounts", "a mountPath is not absolute: write for example /data"},
		{"two mounts at a path", `volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]`, "volumeMounts[1]", "Duplicate value"},
		{"variables from nowhere", `envFrom: [{prefix: A_}]`, "envFrom", "an entry names exactly one of configMapRef and secretRef"},
		{"variables from two places", `envFrom: [{configMapRef: {name: a}, secretRef: {name: b}}]`, "envFrom", "exactly one of"},
		{"a relative directory", `workingDir: code`, "workingDir", "should match"},
		{"a privileged container", `podTemplate: {initContainers: [{name: a, image: i, securityContext: {privileged: true}}]}`, "podTemplate.initContainers",
			"privileged opens the node to the job: remove it"},
		{"a container that may become root", `podTemplate: {initContainers: [{name: a, image: i, securityContext: {allowPrivilegeEscalation: true}}]}`,
			"podTemplate.initContainers", "allowPrivilegeEscalation lets a program become root: remove it"},
		{"a container with a capability", `podTemplate: {initContainers: [{name: a, image: i, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}`,
			"podTemplate.initContainers", "remove capabilities.add"},
		{"a container that sees the kernel", `podTemplate: {initContainers: [{name: a, image: i, securityContext: {procMount: Unmasked}}]}`,
			"podTemplate.initContainers", "procMount uncovers the kernel: remove it"},
		{"a container of the operator's name", `podTemplate: {initContainers: [{name: trainer, image: i}]}`, "podTemplate.initContainers",
			"are names of the operator: choose another"},
		{"a container without image", `podTemplate: {initContainers: [{name: a}]}`, "podTemplate.initContainers", "a container has no image: name one"},
		{"a container that is restarted on failure", `podTemplate: {initContainers: [{name: a, image: i, restartPolicy: OnFailure}]}`,
			"podTemplate.initContainers", "restartPolicy is Always, for a sidecar, or left out"},
		{"a container that sees the checkpoints", `podTemplate: {initContainers: [{name: a, image: i, volumeMounts: [{name: checkpoints, mountPath: /c}]}]}`,
			"podTemplate.initContainers", "mounts a volume of the operator: mount those of spec.volumes, and operator-workspace, only"},
		{"a container with a port of the node", `podTemplate: {initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 1}]}]}`,
			"podTemplate.initContainers[0].ports", "unknown field"},
		{"nine containers", `podTemplate: {initContainers: [` + repeat("{name: a%d, image: i},", 9) + `]}`, "podTemplate.initContainers", "must have at most 8 items"},
		{"the network of the node", `podTemplate: {hostNetwork: true}`, "podTemplate.hostNetwork", "unknown field"},
		{"the processes of the node", `podTemplate: {hostPID: true}`, "podTemplate.hostPID", "unknown field"},
		{"a node", `podTemplate: {nodeName: n1}`, "podTemplate.nodeName", "unknown field"},
		{"the users of the node", `podTemplate: {hostUsers: true}`, "podTemplate.hostUsers", "can only be false"},
		{"a label of the operator", `podTemplate: {labels: {training-job: other}}`, "podTemplate.labels", "are keys of the operator: choose others"},
		{"a label of the operator's group", `podTemplate: {labels: {aiplatform.example.com/queue: q}}`, "podTemplate.labels", "are keys of the operator"},
		{"an annotation of Kueue", `podTemplate: {annotations: {kueue.x-k8s.io/workload: w}}`, "podTemplate.annotations", "are keys of the operator: choose others"},
		{"names without a server", `podTemplate: {dnsPolicy: None}`, "podTemplate.dnsConfig", "has no nameservers, which dnsPolicy None needs: name at least one"},
		{"names of the node's network", `podTemplate: {dnsPolicy: ClusterFirstWithHostNet}`, "podTemplate.dnsPolicy", "supported values"},
		{"no shared memory", `podTemplate: {shmSize: 0}`, "podTemplate.shmSize", "must be above 0: write for example 8Gi"},
		{"no time to end", `podTemplate: {terminationGracePeriodSeconds: 0}`, "podTemplate.terminationGracePeriodSeconds", "should be greater than or equal to 1"},
		{"two hours to end", `podTemplate: {terminationGracePeriodSeconds: 7200}`, "podTemplate.terminationGracePeriodSeconds", "should be less than or equal to 3600"},
		{"a device of two claims", `podTemplate: {resourceClaims: [{name: a, resourceClaimName: b, resourceClaimTemplateName: c}]}`,
			"podTemplate.resourceClaims", "exactly one of resourceClaimName and resourceClaimTemplateName"},
		{"a token of no account", `volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: token}}]}}]`, "volumes", "serviceAccountToken"},
	}
	for kind, of := range kindsWithPods() {
		t.Run(kind, func(t *testing.T) {
			var own []rejection
			for _, test := range tests {
				test.change = under(of.field, "  "+test.change+"\n")
				test.field = of.field + "." + test.field
				own = append(own, test)
			}
			for _, test := range own {
				t.Run(test.name, func(t *testing.T) {
					bad := with(t, object(t, of.object), test.change)
					bad.SetName("bad")
					assertRejected(t, k8s.Create(t.Context(), bad, strictly...), test)
				})
			}
		})
	}
}

// The message itself begins with the field as users write it.
func TestMessagesNameTheField(t *testing.T) {
	for kind, of := range kindsWithPods() {
		t.Run(kind, func(t *testing.T) {
			bad := with(t, object(t, of.object), under(of.field, "  volumes: [{name: a, hostPath: {path: /}}]\n"))
			bad.SetName("bad")
			assert.ErrorContains(t, k8s.Create(t.Context(), bad, strictly...), ": "+of.field+".volumes: a hostPath opens the node to the job")
		})
	}
}

// Who chooses the nodes cannot keep what only kube-scheduler knows.
func TestQueuesRefuseWhatTheyCannotKeep(t *testing.T) {
	const (
		spread  = "  podTemplate: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}\n"
		devices = "  podTemplate: {resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]}\n"
	)
	for name, test := range map[string]struct{ object, settings, field, remedy string }{
		"an AIJob that is spread":        {aiJob, spread, "spec.podTemplate.topologySpreadConstraints", "queues cannot keep DoNotSchedule: use ScheduleAnyway"},
		"an AIJob with devices":          {aiJob, devices, "spec.podTemplate.resourceClaims", "queues do not know which nodes have the devices: remove them"},
		"an Agent that is spread":        {agent, spread, "spec.podTemplate.topologySpreadConstraints", "queues cannot keep DoNotSchedule: use ScheduleAnyway"},
		"a queued TrainingJob, spread":   {trainingJob, spread + "  scheduling: {queueName: q}\n", "spec.podTemplate.topologySpreadConstraints", "use ScheduleAnyway"},
		"a queued TrainingJob's devices": {trainingJob, devices + "  scheduling: {queueName: q}\n", "spec.podTemplate.resourceClaims", "AIJobQueues do not know which nodes"},
		"an AIJob of two priorities":     {aiJob, "  queueName: q\n  priorityClassName: high\n", "spec.priorityClassName", "that of the queue counts"},
	} {
		t.Run(name, func(t *testing.T) {
			assertRejected(t, k8s.Create(t.Context(), with(t, object(t, test.object), "spec:\n"+test.settings), strictly...),
				rejection{field: test.field, remedy: test.remedy})
		})
	}
	for _, settings := range []string{spread, devices} {
		free := with(t, object(t, trainingJob), "spec:\n"+settings)
		free.SetName("")
		free.SetGenerateName("free-")
		assert.NoError(t, k8s.Create(t.Context(), free, strictly...), "kube-scheduler keeps it")
	}
}

// Workers in the operator's own namespace are the cluster's, and its Secrets are not theirs.
func TestWorkersOfTheOperatorsNamespaceHaveNoSecrets(t *testing.T) {
	for name, test := range map[string]struct{ settings, field string }{
		"a Secret as a volume":  {"volumes: [{name: a, secret: {secretName: s}}]", "volumes"},
		"a claim":               {"volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]", "volumes"},
		"a Secret as variables": {"envFrom: [{secretRef: {name: s}}]", "envFrom"},
		"a Secret of an init container": {"podTemplate: {initContainers: [{name: a, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}",
			"podTemplate.initContainers"},
	} {
		t.Run(name, func(t *testing.T) {
			queue := with(t, object(t, aiJobQueue), "spec:\n  workers:\n    "+test.settings+"\n")
			queue.SetName("bad")
			assertRejected(t, k8s.Create(t.Context(), queue, strictly...), rejection{field: "spec.workers." + test.field, remedy: "set spec.workers.namespace"})
			elsewhere := with(t, queue, "spec: {workers: {namespace: team}}")
			elsewhere.SetName("")
			elsewhere.SetGenerateName("elsewhere-")
			assert.NoError(t, k8s.Create(t.Context(), elsewhere, strictly...))
		})
	}
}

func repeat(format string, times int) string {
	var all strings.Builder
	for n := range times {
		fmt.Fprintf(&all, format, n)
	}
	return all.String()
}
