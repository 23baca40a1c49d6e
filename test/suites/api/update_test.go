package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// create stores an object for the time of a test.
func create(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	require.NoError(t, k8s.Create(t.Context(), o))
	t.Cleanup(func() {
		// The test's context is over by now.
		if err := client.IgnoreNotFound(k8s.Delete(context.Background(), o)); err != nil {
			t.Error(err)
		}
	})
	return o
}

// change is an update of an object that exists: it is accepted when field is empty, else refused.
type change struct {
	rejection
	// before is the document laid over the base to make the object that exists.
	before string
	// status of the object that exists, as YAML.
	status string
}

func testChanges(t *testing.T, base string, tests []change) {
	t.Helper()
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := with(t, object(t, base), fmt.Sprintf(`metadata: {name: change-%d}`, i))
			o = create(t, with(t, o, test.before))
			if test.status != "" {
				setStatus(t, o, test.status)
			}
			err := k8s.Patch(t.Context(), o, mergePatch(t, test.change), client.DryRunAll,
				client.FieldValidation(metav1.FieldValidationStrict))
			if test.field == "" {
				assert.NoError(t, err)
				return
			}
			assertRejected(t, err, test.rejection)
		})
	}
}

func setStatus(t *testing.T, o *unstructured.Unstructured, status string) {
	t.Helper()
	content := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(status), &content))
	data, err := json.Marshal(map[string]any{"status": content})
	require.NoError(t, err)
	require.NoError(t, k8s.Status().Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", data)))
}

func mergePatch(t *testing.T, document string) client.Patch {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(document))
	require.NoError(t, err)
	return client.RawPatch("application/merge-patch+json", data)
}

func accepted(name, change string) rejection { return rejection{name: name, change: change} }

func TestTrainingJobChanges(t *testing.T) {
	const (
		remedy = "can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
		before = "can be changed only before the first start, while the job is suspended or queued: delete the job and create it again, its checkpoints are kept"
	)
	elastic := `spec: {elastic: {minWorkers: 1, maxWorkers: 4}}`
	tests := []change{
		{rejection: accepted("suspend", `spec: {suspend: true}`)},
		{rejection: accepted("time to live", `spec: {ttlSecondsAfterFinished: 60}`)},
		{rejection: accepted("clean-up", `spec: {cleanupPolicy: All}`)},
		{rejection: accepted("a label", `metadata: {labels: {team: vision}}`)},
		{rejection: accepted("workers within elastic", `spec: {numWorkers: 4}`), before: elastic},
		{rejection: rejection{"workers beyond elastic", `spec: {numWorkers: 5}`, "spec.numWorkers", "choose a number within these bounds or widen them"}, before: elastic},
		{rejection: rejection{"workers of a job of fixed size", `spec: {numWorkers: 3}`, "spec.numWorkers", "can be changed only with spec.elastic, or while the job is suspended or queued"}},
		{rejection: rejection{"elastic afterwards", elastic, "spec.elastic", remedy}},
		{rejection: accepted("resources written another way", `spec: {resources: {limits: {cpu: "1", memory: 1Gi, nvidia.com/gpu: "1"}}}`),
			before: `spec: {resources: {limits: {cpu: 1000m, memory: 1024Mi, nvidia.com/gpu: 1}}}`},
		{rejection: accepted("a length of time written another way", `spec: {checkpoint: {interval: 15m0s}}`),
			before: `spec: {checkpoint: {interval: 15m}}`},
		{rejection: rejection{"another length of time", `spec: {checkpoint: {interval: 16m}}`, "spec.checkpoint", remedy},
			before: `spec: {checkpoint: {interval: 15m}}`},
		{rejection: rejection{"a limit", `spec: {resources: {limits: {memory: 2Gi}}}`, "spec.resources", remedy},
			before: `spec: {resources: {limits: {memory: 1Gi}}}`},
		{rejection: rejection{"a limit more", `spec: {resources: {limits: {rdma/hca: 1}}}`, "spec.resources", remedy},
			before: `spec: {resources: {limits: {memory: 1Gi}}}`},
		{rejection: rejection{"a request less", `spec: {resources: {requests: {cpu: null}}}`, "spec.resources", remedy},
			before: `spec: {resources: {requests: {cpu: 1, memory: 1Gi}}}`},
	}
	// Of each way to wait, whether fields can be changed in it, and those that decide where its checkpoints are.
	ways := map[string]struct {
		before, status  string
		editable, first bool
	}{
		"running":                        {status: `{state: Running, reason: WorkersRunning}`},
		"just created":                   {},
		"being suspended":                {before: `spec: {suspend: true}`, status: `{state: Running}`},
		"suspended":                      {before: `spec: {suspend: true}`, status: `{state: Suspended, reason: Suspended}`, editable: true, first: true},
		"suspended after a start":        {before: `spec: {suspend: true}`, status: `{state: Suspended, startCount: 1}`, editable: true},
		"resumed":                        {status: `{state: Suspended, reason: Suspended}`},
		"queued":                         {status: `{state: Pending, reason: Queued, admission: {queuedTime: "2026-01-01T00:00:00Z"}}`, editable: true, first: true},
		"evicted":                        {status: `{state: Suspended, startCount: 2, admission: {queuedTime: "2026-01-01T00:00:00Z"}}`, editable: true},
		"admitted":                       {status: `{state: Pending, admission: {admittedTime: "2026-01-01T00:00:00Z"}}`},
		"held by Kueue":                  {status: `{state: Pending, reason: Queued, startCount: 1}`, editable: true},
		"evicted by Kueue":               {status: `{state: Suspended, reason: EvictedByQueue, startCount: 2}`, editable: true},
		"requeued by Kueue":              {status: `{state: Pending, reason: RequeuedAfterEdit, startCount: 1}`, editable: true},
		"let go by Kueue":                {status: `{state: Initializing, reason: WorkersStarting, startCount: 1}`},
		"admitted, with its last reason": {status: `{state: Pending, reason: Queued, admission: {admittedTime: "2026-01-01T00:00:00Z"}}`},
		"kept from starting by a claim":  {status: `{state: Pending, reason: ClaimNotFound}`, editable: true, first: true},
		"kept from starting by its spec": {status: `{state: Pending, reason: InvalidSpec}`, editable: true, first: true},
		"pending for a quota":            {status: `{state: Pending, reason: ResourceQuotaExceeded}`},
		"its code cannot be fetched":     {status: `{state: Restarting, reason: SourceNotFound, startCount: 1}`, editable: true},
		"restarted":                      {status: `{state: Restarting, reason: NodeLost, startCount: 1}`},
		"completed":                      {status: `{state: Completed}`},
	}
	changes := map[string]string{
		"model": "vgg", "dataset": "cifar", "gpusPerWorker": "2", "framework": "jax", "image": "other:v1",
		"imagePullPolicy": "Never", "imagePullSecrets": "[{name: s}]", "command": "[a]", "args": "[a]", "env": "[{name: A, value: b}]",
		"resources": "{limits: {cpu: 1}}", "hyperparameters": "{epochs: 3}", "checkpoint": "{frequency: 2}", "scheduling": "{gang: true}",
		"monitoring": "{metricsPort: 9000}", "networking": "{masterPort: 9001}", "failurePolicy": "{backoffLimit: 7}",
		"successPolicy": "{targetAccuracy: 0.9}", "serviceAccountName": "other", "securityContext": "{runAsUser: 7}", "numWorkers": "3",
		"elastic": "{minWorkers: 1, maxWorkers: 4}", "volumes": "[{name: a, emptyDir: {}}]", "volumeMounts": "[{name: a, mountPath: /a}]",
		"envFrom": "[{secretRef: {name: s}}]", "workingDir": "/work", "podTemplate": "{shmSize: 1Gi}",
		"source": "{configMap: {name: other}}",
	}
	for name, way := range ways {
		for field, value := range changes {
			test := change{rejection: accepted(name+": "+field, "spec: {"+field+": "+value+"}"), before: way.before, status: way.status}
			switch onlyFirst := field == "model" || field == "dataset" || field == "framework" || field == "checkpoint"; {
			case onlyFirst && !way.first:
				test.field, test.remedy = "spec."+field, before
			case !onlyFirst && !way.editable:
				test.field, test.remedy = "spec."+field, "while the job is suspended or queued: set spec.suspend, wait for Suspended"
			}
			tests = append(tests, test)
		}
		storage := change{
			rejection: accepted(name+": the storage", `spec: {checkpoint: {storage: {claimName: other}}}`),
			before:    "{spec: {checkpoint: {frequency: 2}, " + strings.TrimPrefix(way.before, "spec: {"), status: way.status,
		}
		if way.before == "" {
			storage.before = "spec: {checkpoint: {frequency: 2}}"
		} else {
			storage.before += "}"
		}
		if !way.first {
			storage.field, storage.remedy = "spec.checkpoint", "can be changed only"
		}
		tests = append(tests, storage)
	}
	tests = append(tests, change{
		rejection: accepted("the frequency of checkpoints after a start", `spec: {checkpoint: {frequency: 5}}`),
		before:    `spec: {suspend: true, checkpoint: {frequency: 2}}`, status: `{state: Suspended, startCount: 1}`,
	}, change{
		rejection: accepted("an edit that resumes", `spec: {suspend: false, image: "other:v2"}`),
		before:    `spec: {suspend: true, image: "other:v1"}`, status: `{state: Suspended, startCount: 1}`,
	})
	testChanges(t, trainingJob, tests)
}

func TestSpotChanges(t *testing.T) {
	testChanges(t, spotInstanceJob, []change{
		{rejection: accepted("replicas", `spec: {replicas: 3}`)},
		{rejection: accepted("interval", `spec: {checkpointConfig: {checkpointInterval: 5m}}`)},
		{rejection: rejection{"the image", `spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: train, image: "train:v2"}]}}}}}`,
			"spec.jobTemplate.spec.template.spec.containers", "images are immutable, since checkpoints of the old ones cannot be continued: create another"}},
		{rejection: rejection{"the arguments", `spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: train, image: "train:v1", args: [--fast]}]}}}}}`,
			"spec.jobTemplate.spec.template.spec.containers", "arguments are immutable"}},
		{rejection: accepted("the resources", `spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: train, image: "train:v1", resources: {limits: {cpu: 1}}}]}}}}}`)},
	})
	testChanges(t, spotInstanceVM, []change{
		{rejection: accepted("zone", `spec: {gcp: {zone: europe-west4-a}}`)},
		{rejection: accepted("maximum", `spec: {maxInstances: 9}`)},
		{rejection: rejection{"project", `spec: {gcp: {project: other-project}}`, "spec.gcp.project", "create another SpotInstanceVM"}},
	})
}

func TestAIPlatformChanges(t *testing.T) {
	const remedy = "can be changed only while the job waits or is in DeadLetter: create another AIJob"
	const running = "phase: Running"
	tests := []change{
		{rejection: accepted("priority", `spec: {priority: 90}`)},
		{rejection: accepted("cancel", `spec: {cancel: true}`)},
		{rejection: accepted("retries", `spec: {retryPolicy: {maxRetries: 9}}`)},
		{rejection: accepted("the queue of a job that waits", `spec: {queueName: b}`), before: `spec: {queueName: a}`, status: `phase: Queued`},
		{rejection: accepted("the queue of a job without a status", `spec: {queueName: b}`)},
		{rejection: rejection{"the queue of a job that runs", `spec: {queueName: b}`, "spec.queueName", "create another AIJob in the other queue"},
			before: `spec: {queueName: a}`, status: `phase: Running`},
		{rejection: rejection{"cancel taken back", `spec: {cancel: false}`, "spec.cancel", "create another AIJob"}, before: `spec: {cancel: true}`},
	}
	for field, value := range map[string]string{
		"jobType": "training", "image": "other:v1", "command": "[a]", "args": "[a]", "env": "[{name: A, value: b}]", "config": "{a: {b: 1}}",
		"resources": "{limits: {cpu: 1}}", "gang": "{enabled: true, minMembers: 2}", "nodeSelector": "{a: b}",
		"tolerations": "[{key: a}]", "clusterName": "other", "serviceAccountName": "other", "volumes": "[{name: a, emptyDir: {}}]",
		"podTemplate": "{shmSize: 1Gi}", "affinity": "{nodeAffinity: {}}", "imagePullPolicy": "Never",
		"source": "{configMap: {name: other}}",
	} {
		edit := "spec: {" + field + ": " + value + "}"
		for _, phase := range []string{"Scheduled", "Running", "Succeeded", "Failed", "Pending", "Queued", "Retrying", "DeadLetter"} {
			test := change{rejection: accepted(field+" of a job that is "+phase, edit), status: "phase: " + phase}
			switch never := field == "jobType" || field == "gang"; {
			case never:
				test.field, test.remedy = "spec."+field, "is immutable: create another AIJob"
			case phase == "Scheduled" || phase == "Running" || phase == "Succeeded" || phase == "Failed":
				test.field, test.remedy = "spec."+field, remedy
			}
			tests = append(tests, test)
		}
	}
	for field, values := range map[string][2]string{
		"command": {"[a]", "[b]"}, "args": {"[a]", "[a, b]"}, "env": {"[{name: A, value: a}]", "[{name: A, value: b}]"},
		"config": {"{a: {b: 1}}", "{a: {b: 2}}"}, "resources": {"{limits: {cpu: 1}, requests: {cpu: 1}}", "{limits: {cpu: 2}, requests: {cpu: 1}}"},
		"nodeSelector": {"{a: b}", "{a: c}"}, "tolerations": {"[{key: a}]", "[{key: b}]"}, "clusterName": {"one", "other"},
		"serviceAccountName": {"one", "other"},
	} {
		before := "spec: {" + field + ": " + values[0] + "}"
		tests = append(tests,
			change{rejection: rejection{field + " changed", "spec: {" + field + ": " + values[1] + "}", "spec." + field, remedy}, before: before, status: running},
			change{rejection: rejection{field + " removed", "spec: {" + field + ": null}", "spec." + field, remedy}, before: before, status: running},
			change{rejection: accepted(field+" in the same words", before), before: before, status: running})
	}
	tests = append(tests,
		change{rejection: rejection{"requests removed", "spec: {resources: {requests: null}}", "spec.resources", remedy}, before: "spec: {resources: {requests: {cpu: 1}}}", status: running},
		change{rejection: rejection{"another resource", "spec: {resources: {requests: {cpu: null, memory: 1Gi}}}", "spec.resources", remedy}, before: "spec: {resources: {requests: {cpu: 1}}}", status: running},
		change{rejection: accepted("the same amount in other words", `spec: {resources: {requests: {cpu: 1000m}}}`), before: "spec: {resources: {requests: {cpu: 1}}}", status: running})
	testChanges(t, aiJob, tests)
	testChanges(t, agentWorkflow, []change{
		{rejection: accepted("stages at rest", `spec: {stages: [{name: a, agent: b}]}`), status: `phase: Succeeded`},
		{rejection: accepted("priority while it runs", `spec: {priority: 1}`), status: `phase: Running`},
		{rejection: rejection{"stages while it runs", `spec: {stages: [{name: a, agent: b}]}`, "spec.stages", "wait for its end, or create another AgentWorkflow"},
			status: `phase: Running`},
	})
}

// kubectl scale and the HPA are held to the same bounds.
func TestTrainingJobScale(t *testing.T) {
	job := create(t, with(t, object(t, trainingJob), `{metadata: {name: scaled}, spec: {elastic: {minWorkers: 1, maxWorkers: 4}}}`))
	scaleTo := func(replicas int32) error {
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		return k8s.SubResource("scale").Update(t.Context(), job, client.WithSubResourceBody(scale))
	}
	require.NoError(t, scaleTo(3))
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	assert.EqualValues(t, 3, job.Object["spec"].(map[string]any)["numWorkers"])
	assertRejected(t, scaleTo(5), rejection{field: "spec.numWorkers", remedy: "choose a number within these bounds or widen them"})
}
