package api_test

import (
	"fmt"
	"strings"
	"testing"
)

const aiJob = `
apiVersion: aiplatform.example.com/v1alpha1
kind: AIJob
metadata:
  name: good
spec:
  jobType: inference
  image: inference:v1
`

const aiJobQueue = `
apiVersion: aiplatform.example.com/v1alpha1
kind: AIJobQueue
metadata:
  name: good
spec: {}
`

const computeCluster = `
apiVersion: aiplatform.example.com/v1alpha1
kind: ComputeCluster
metadata:
  name: good
spec: {}
`

const agent = `
apiVersion: aiplatform.example.com/v1alpha1
kind: Agent
metadata:
  name: good
spec:
  image: agent:v1
`

const agentWorkflow = `
apiVersion: aiplatform.example.com/v1alpha1
kind: AgentWorkflow
metadata:
  name: good
spec:
  stages:
  - name: read
    agent: reader
  - name: write
    agent: writer
    dependsOn: [read]
    inputs:
      text: $(stages.read.outputs.text)
`

// sixtyFiveResources are names and amounts.
func sixtyFiveResources() string {
	var list []string
	for i := range 65 {
		list = append(list, fmt.Sprintf("example.com/device-%d: 1", i))
	}
	return strings.Join(list, ", ")
}

func TestAIJobRejections(t *testing.T) {
	testRejections(t, aiJob, []rejection{
		{"a name that is too long", `metadata: {name: ` + strings.Repeat("a", 51) + `}`, "spec", "choose a shorter or simpler name"},
		{"no type", `spec: {jobType: null}`, "spec.jobType", "Required value"},
		{"an unknown type", `spec: {jobType: cooking}`, "spec.jobType", `supported values: "inference", "training", "simulation", "evaluation"`},
		{"no image", `spec: {image: null}`, "spec.image", "Required value"},
		{"a priority above 100", `spec: {priority: 101}`, "spec.priority", "should be less than or equal to 100"},
		{"a priority in words", `spec: {priority: high}`, "spec.priority", "must be of type integer"},
		{"a queue name with a slash", `spec: {queueName: a/b}`, "spec.queueName", "should match"},
		{"a config that is no object", `spec: {config: text}`, "spec.config", "must be of type object"},
		{"GPU requests that differ from the limit", `spec: {resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 1}}}`, "spec.resources.requests", "set both to the same number or remove one"},
		{"a request above its limit", `spec: {resources: {requests: {cpu: 2}, limits: {cpu: 500m}}}`, "spec.resources.requests", "lower the request or raise the limit"},
		{"a negative amount of memory", `spec: {resources: {requests: {memory: -1Gi}}}`, "spec.resources.requests", "write for example cpu: 500m"},
		{"65 kinds of resources", `spec: {resources: {limits: {` + sixtyFiveResources() + `}}}`, "spec.resources.limits", "names more than 64 resources"},
		{"requests for 65 kinds of resources", `spec: {resources: {requests: {` + sixtyFiveResources() + `}}}`, "spec.resources.requests", "names more than 64 resources"},
		{"fewer than no GPUs", `spec: {resources: {limits: {nvidia.com/gpu: -1}}}`, "spec.resources.limits", "has an amount below 0"},
		{"a request for fewer than no GPUs", `spec: {resources: {requests: {nvidia.com/gpu: "-1"}}}`, "spec.resources.requests", "has an amount below 0"},
		{"a gang of one", `spec: {gang: {enabled: true}}`, "spec.gang.minMembers", "set it to the number of pods, or set enabled to false"},
		{"members without gang", `spec: {gang: {minMembers: 4}}`, "spec.gang.enabled", "set enabled to true to start that many pods together, or remove minMembers"},
		{"a topology without gang", `spec: {gang: {topology: zone}}`, "spec.gang.topology", "set enabled to true or remove topology"},
		{"a gang of 1001", `spec: {gang: {enabled: true, minMembers: 1001}}`, "spec.gang.minMembers", "should be less than or equal to 1000"},
		{"fewer than no retries", `spec: {retryPolicy: {maxRetries: -1}}`, "spec.retryPolicy.maxRetries", "should be greater than or equal to 0"},
		{"a delay that shrinks", `spec: {retryPolicy: {backoffMultiplier: 0.5}}`, "spec.retryPolicy.backoffMultiplier", "should be greater than or equal to 1"},
		{"a first delay above the longest", `spec: {retryPolicy: {initialBackoff: 1h, maxBackoff: 5m}}`, "spec.retryPolicy.initialBackoff", "1h is more than maxBackoff 5m: lower it or raise maxBackoff"},
		{"a delay without unit", `spec: {retryPolicy: {maxBackoff: 60}}`, "spec.retryPolicy.maxBackoff", "must be of type string"},
		{"a delay of two days", `spec: {retryPolicy: {maxBackoff: 48h}}`, "spec.retryPolicy.maxBackoff", "choose less"},
		{"a time limit of more than 100 years", `spec: {timeoutSeconds: 3153600001}`, "spec.timeoutSeconds", "should be less than or equal to 3153600000"},
		{"no time to run", `spec: {timeoutSeconds: 0}`, "spec.timeoutSeconds", "should be greater than or equal to 1"},
		{"a time to live that no client can read", `spec: {ttlSecondsAfterFinished: 2147483648}`, "spec.ttlSecondsAfterFinished", "should be less than or equal to 2147483647"},
		{"a negative time to live", `spec: {ttlSecondsAfterFinished: -1}`, "spec.ttlSecondsAfterFinished", "should be greater than or equal to 0"},
		{"a node label with blanks", `spec: {nodeSelector: {gpu: "A 100"}}`, "spec.nodeSelector.gpu", "should match"},
		{"an unknown effect of a toleration", `spec: {tolerations: [{key: gpu, effect: Never}]}`, "spec.tolerations", "use NoSchedule, PreferNoSchedule or NoExecute"},
		{"a variable with two values", `spec: {env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`, "spec.env", "keep one of the two"},
		{"a misspelled field", `spec: {gangs: {enabled: true}}`, "spec.gangs", "unknown field"},
	})
}

func TestAIJobQueueRejections(t *testing.T) {
	testRejections(t, aiJobQueue, []rejection{
		{"a name with a dot", `metadata: {name: a.b}`, "spec", "choose a shorter or simpler name"},
		{"no concurrency", `spec: {maxConcurrency: 0}`, "spec.maxConcurrency", "should be greater than or equal to 1"},
		{"an unknown algorithm", `spec: {algorithm: lottery}`, "spec.algorithm", `supported values: "priority", "fifo", "fair-share"`},
		{"an unknown preemption policy", `spec: {preemptionPolicy: Always}`, "spec.preemptionPolicy", `supported values: "Never", "PreemptLowerPriority"`},
		{"a priority class with blanks", `spec: {priorityClass: very high}`, "spec.priorityClass", "should match"},
		{"empty quotas", `spec: {quotas: {}}`, "spec.quotas", "should have at least 1 properties"},
		{"a quota of no CPU", `spec: {quotas: {cpu: 0}}`, "spec.quotas.cpu", "write for example 400 or 500m"},
		{"a quota of memory in words", `spec: {quotas: {memory: lots}}`, "spec.quotas.memory", "should match"},
		{"a quota of fewer than no GPUs", `spec: {quotas: {gpus: -1}}`, "spec.quotas.gpus", "should be greater than or equal to 0"},
		{"more jobs for one user than for all", `spec: {maxConcurrency: 5, userLimits: {maxConcurrency: 6}}`, "spec.userLimits.maxConcurrency", "6 is more than maxConcurrency 5 of the whole queue: lower it or raise spec.maxConcurrency"},
		{"more jobs for one namespace than for all", `spec: {namespaceLimits: {maxConcurrency: 200}}`, "spec.namespaceLimits.maxConcurrency", "lower it or raise spec.maxConcurrency"},
		{"a limit of borrowing without a cohort to borrow from", `spec: {quotas: {gpus: 1}, borrowingLimits: {gpus: 1}}`, "spec.borrowingLimits", "name one in spec.cohort, or remove borrowingLimits"},
		{"a cohort without anything to lend", `spec: {cohort: c}`, "spec.cohort", "set spec.quotas, or remove cohort"},
		{"a limit of borrowing what is not limited", `spec: {cohort: c, quotas: {gpus: 1}, borrowingLimits: {cpu: 1}}`, "spec.borrowingLimits", "add it to spec.quotas, or remove it here"},
		{"an unknown operator of a toleration", `spec: {workers: {image: pool:v1, tolerations: [{key: gpu, operator: Exist}]}}`, "spec.workers.tolerations", "use Exists, or Equal with a value"},
		{"an unknown effect of a toleration", `spec: {workers: {image: pool:v1, tolerations: [{key: gpu, effect: Never}]}}`, "spec.workers.tolerations", "use NoSchedule, PreferNoSchedule or NoExecute"},
		{"a cohort in capitals", `spec: {cohort: C, quotas: {gpus: 1}}`, "spec.cohort", "should match"},
	})
}

func TestComputeClusterRejections(t *testing.T) {
	testRejections(t, computeCluster, []rejection{
		{"a node label with blanks", `spec: {nodeSelector: {accelerator: "A 100"}}`, "spec.nodeSelector.accelerator", "should match"},
		{"a node label without name", `spec: {nodeSelector: {"example.com/": x}}`, "spec.nodeSelector", "use letters, digits, -, _ and ."},
		{"an empty capacity", `spec: {capacity: {}}`, "spec.capacity", "should have at least 1 properties"},
		{"room for no job", `spec: {capacity: {maxJobs: 0}}`, "spec.capacity.maxJobs", "should be greater than or equal to 1"},
		{"fewer than no GPUs", `spec: {capacity: {maxGPUs: -1}}`, "spec.capacity.maxGPUs", "should be greater than or equal to 0"},
		{"node bounds the wrong way round", `spec: {minNodes: 5, maxNodes: 2}`, "spec.minNodes", "5 is more than maxNodes 2: lower it or raise maxNodes"},
	})
}

func TestAgentRejections(t *testing.T) {
	testRejections(t, agent, []rejection{
		{"no image", `spec: {image: null}`, "spec.image", "Required value"},
		{"an input twice", `spec: {inputs: [{name: a}, {name: a}]}`, "spec.inputs[1]", "Duplicate value"},
		{"an input that is no variable name", `spec: {inputs: [{name: "a b"}]}`, "spec.inputs[0].name", "should match"},
		{"a required input with default", `spec: {inputs: [{name: a, required: true, default: x}]}`, "spec.inputs[0].required", "remove one of the two"},
		{"65 kinds of resources", `spec: {resources: {limits: {` + sixtyFiveResources() + `}}}`, "spec.resources.limits", "names more than 64 resources"},
		{"requests for 65 kinds of resources", `spec: {resources: {requests: {` + sixtyFiveResources() + `}}}`, "spec.resources.requests", "names more than 64 resources"},
		{"fewer than no GPUs", `spec: {resources: {limits: {nvidia.com/gpu: -1}}}`, "spec.resources.limits", "has an amount below 0"},
		{"a request for fewer than no GPUs", `spec: {resources: {requests: {nvidia.com/gpu: "-1"}}}`, "spec.resources.requests", "has an amount below 0"},
		{"17 outputs", `spec: {outputs: [` + strings.Repeat("{name: a},", 17) + `]}`, "spec.outputs", "must have at most 16 items"},
		{"a time limit of more than 100 years", `spec: {timeoutSeconds: 3153600001}`, "spec.timeoutSeconds", "should be less than or equal to 3153600000"},
		{"no time to run", `spec: {timeoutSeconds: 0}`, "spec.timeoutSeconds", "should be greater than or equal to 1"},
	})
}

func TestAgentWorkflowRejections(t *testing.T) {
	testRejections(t, agentWorkflow, []rejection{
		{"a time limit of more than 100 years", `spec: {timeoutSeconds: 3153600001}`, "spec.timeoutSeconds", "should be less than or equal to 3153600000"},
		{"no stages", `spec: {stages: []}`, "spec.stages", "should have at least 1 items"},
		{"a stage without agent", `spec: {stages: [{name: a}]}`, "spec.stages[0].agent", "Required value"},
		{"a stage twice", `spec: {stages: [{name: a, agent: x}, {name: a, agent: x}]}`, "spec.stages[1]", "Duplicate value"},
		{"a stage name in capitals", `spec: {stages: [{name: Read, agent: x}]}`, "spec.stages[0].name", "should match"},
		{"a stage that depends on itself", `spec: {stages: [{name: a, agent: x, dependsOn: [a]}]}`, "spec.stages", "list every stage after those in its dependsOn"},
		{"two stages in a circle", `spec: {stages: [{name: a, agent: x, dependsOn: [b]}, {name: b, agent: x, dependsOn: [a]}]}`, "spec.stages", "remove a dependency if they go in a circle"},
		{"a stage before what it depends on", `spec: {stages: [{name: a, agent: x, dependsOn: [b]}, {name: b, agent: x}]}`, "spec.stages", "list every stage after those in its dependsOn"},
		{"an unknown dependency", `spec: {stages: [{name: a, agent: x, dependsOn: [c]}]}`, "spec.stages", "correct the name in its dependsOn or add the stage"},
		{"a reference to a stage it does not wait for", `spec: {stages: [{name: a, agent: x}, {name: b, agent: x, inputs: {t: $(stages.a.outputs.o)}}]}`, "spec.stages", "add that stage to dependsOn"},
		{"a reference to an unknown stage", `spec: {stages: [{name: a, agent: x, inputs: {t: $(stages.z.outputs.o)}}]}`, "spec.stages", "add that stage to dependsOn"},
		{"an unknown trigger", `spec: {trigger: {type: moon}}`, "spec.trigger.type", `supported values: "manual", "schedule", "event"`},
		{"a schedule without times", `spec: {trigger: {type: schedule}}`, "spec.trigger.config", "add schedule with a cron expression"},
		{"an event without reason", `spec: {trigger: {type: event, config: {kind: Pod}}}`, "spec.trigger.config", "add kind and reason"},
		{"settings of no trigger", `spec: {trigger: {config: {schedule: "0 3 * * *"}}}`, "spec.trigger.config", "remove it, or set type to schedule or event"},
		{"a condition of 1025 characters", `spec: {stages: [{name: a, agent: x, condition: ` + strings.Repeat("t", 1025) + `}]}`, "spec.stages[0].condition", "may not be more than 1024 bytes"},
	})
}
