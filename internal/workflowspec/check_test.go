package workflowspec

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// values is short for the inputs of a stage.
type inputs = map[string]aiplatformv1alpha1.ParameterValue

func TestCheck(t *testing.T) {
	stage := func(name aiplatformv1alpha1.StageName, agent string, set func(*aiplatformv1alpha1.Stage)) aiplatformv1alpha1.Stage {
		s := aiplatformv1alpha1.Stage{Name: name, Agent: agent, Inputs: inputs{"text": "x"}}
		if set != nil {
			set(&s)
		}
		return s
	}
	reader := &aiplatformv1alpha1.Agent{}
	reader.Name = "reader"
	reader.Spec.Inputs = []aiplatformv1alpha1.AgentInput{{Name: "text"}, {Name: "length", Default: ptr.To("3")}, {Name: "style", Required: ptr.To(false)}}
	reader.Spec.Outputs = []aiplatformv1alpha1.AgentOutput{{Name: "title"}, {Name: "score"}}
	broken := agentOf(aiplatformv1alpha1.AgentInput{Name: "a-b"}, aiplatformv1alpha1.AgentInput{Name: "a_b"})
	agents := map[string]*aiplatformv1alpha1.Agent{"reader": reader, "broken": broken}

	// second is the stage whose problems are looked for; first comes before it, and other beside it.
	tests := map[string]struct {
		set    func(*aiplatformv1alpha1.Stage)
		reason string
		want   string
	}{
		"all is right": {func(s *aiplatformv1alpha1.Stage) {
			s.Inputs["text"] = "$(stages.first.outputs.title) of $(inputs.document)"
			s.Outputs = []aiplatformv1alpha1.ParameterName{"score"}
			s.Condition = "double(stages.first.outputs.score) > 0.5 && stages['root'].outputs['title'].startsWith(inputs.document)"
		}, "", ""},
		"an agent that does not exist": {
			func(s *aiplatformv1alpha1.Stage) { s.Agent = "writer" }, "AgentNotFound",
			"spec.stages[2].agent: Agent writer does not exist in namespace team: create it or correct the name",
		},
		"an agent that contradicts itself": {
			func(s *aiplatformv1alpha1.Stage) { s.Agent = "broken" }, "InvalidAgent",
			"spec.stages[2].agent: Agent broken: spec.inputs[1].name: a-b and a_b would both be the environment variable INPUT_A_B: rename one of the two",
		},
		"an input that the agent has not": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["txt"] = "" }, "InvalidReference",
			"spec.stages[2].inputs.txt: Agent reader has no such input: it has text, length, style",
		},
		"an input that lacks": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs = nil }, "InvalidReference",
			"spec.stages[2].inputs: lacks text, which Agent reader requires: add it",
		},
		"an input of the workflow that there is not": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["text"] = "see $(inputs.paper)" }, "InvalidReference",
			"spec.stages[2].inputs.text: refers to the workflow's input paper, which spec.inputs does not have: add it there",
		},
		"a reference that is none": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["text"] = "$(stages.first.title)" }, "InvalidReference",
			`spec.stages[2].inputs.text: "$(stages.first.title)" is no reference: write $(inputs.NAME) or $(stages.STAGE.outputs.OUTPUT)`,
		},
		"a reference without an end": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["text"] = "$(inputs.document" }, "InvalidReference",
			`spec.stages[2].inputs.text: "$(inputs.document" is no reference: write $(inputs.NAME) or $(stages.STAGE.outputs.OUTPUT)`,
		},
		"a stage within a text that it does not depend on": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["text"] = "see $(stages.other.outputs.title)" }, "InvalidReference",
			"spec.stages[2].inputs.text: refers to stage other, which is not in dependsOn: add it there",
		},
		"an output that the agent before has not": {
			func(s *aiplatformv1alpha1.Stage) { s.Inputs["text"] = "$(stages.first.outputs.author)" }, "InvalidReference",
			"spec.stages[2].inputs.text: refers to output author of stage first, but its Agent reader has no such output: it has title, score",
		},
		"an output to keep that the agent has not": {
			func(s *aiplatformv1alpha1.Stage) { s.Outputs = []aiplatformv1alpha1.ParameterName{"title", "author"} }, "InvalidReference",
			"spec.stages[2].outputs[1]: Agent reader has no output author: it has title, score",
		},
		"a condition that is no CEL": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "stages.first.outputs.score >" }, "InvalidReference",
			"spec.stages[2].condition: column 29: Syntax error:",
		},
		"a condition on something unknown": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "accuracy > 0.5" }, "InvalidReference",
			"spec.stages[2].condition: column 1: undeclared reference to 'accuracy' (in container '')",
		},
		"a condition that compares a text with a number": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "stages.first.outputs.score > 0.5" }, "InvalidReference",
			"spec.stages[2].condition: column 28: found no matching overload for '_>_' applied to '(string, double)'",
		},
		"a condition that is not true or false": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "inputs.document" }, "InvalidReference",
			"spec.stages[2].condition: it yields string and not true or false: compare it with something",
		},
		"a condition on a stage that may run later": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "stages['other'].outputs.title == ''" }, "InvalidReference",
			"spec.stages[2].condition: refers to stage other, which stage second does not depend on: add it to dependsOn",
		},
		"a condition on an output that there is not": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "has(stages.first.outputs.author)" }, "InvalidReference",
			"spec.stages[2].condition: refers to output author of stage first, but its Agent reader has no such output: it has title, score",
		},
		"a condition on what a stage has not": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "has(stages.first.phase)" }, "InvalidReference",
			"spec.stages[2].condition: stages.first has no phase: write stages.first.outputs.OUTPUT",
		},
		"a condition on an input that there is not": {
			func(s *aiplatformv1alpha1.Stage) { s.Condition = "inputs.paper == ''" }, "InvalidReference",
			"spec.stages[2].condition: refers to the workflow's input paper, which spec.inputs does not have: add it there",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			workflow := &aiplatformv1alpha1.AgentWorkflow{}
			workflow.Namespace = "team"
			workflow.Spec.Inputs = inputs{"document": "https://example.com"}
			workflow.Spec.Stages = []aiplatformv1alpha1.Stage{
				stage("root", "reader", nil),
				stage("first", "reader", func(s *aiplatformv1alpha1.Stage) { s.DependsOn = []aiplatformv1alpha1.StageName{"root"} }),
				stage("second", "reader", func(s *aiplatformv1alpha1.Stage) {
					s.DependsOn = []aiplatformv1alpha1.StageName{"first"}
					test.set(s)
				}),
				stage("other", "reader", nil),
			}
			problems := Check(workflow, agents)
			if test.reason == "" {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.Equal(t, test.reason, problems["second"].Reason)
			assert.Contains(t, problems["second"].Message, test.want)
			assert.NotContains(t, problems["second"].Message, "\n")
		})
	}
}

func TestHolds(t *testing.T) {
	values := Values{
		Inputs: inputs{"limit": "0.9"},
		Outputs: map[aiplatformv1alpha1.StageName]map[string]string{
			"evaluate": {"accuracy": "0.93", "labels": "a,b"}, "my-stage": {"done": "yes"}, "silent": {},
		},
	}
	for condition, want := range map[string]bool{
		"": true,
		"double(stages.evaluate.outputs.accuracy) > double(inputs.limit)": true,
		"double(stages.evaluate.outputs.accuracy) > 0.95":                 false,
		"stages['my-stage'].outputs.done == 'yes'":                        true,
		"has(stages.silent.outputs.done)":                                 false,
		"'b' in stages.evaluate.outputs.labels.split(',')":                true,
	} {
		holds, err := Holds(&aiplatformv1alpha1.Stage{Condition: condition}, values)
		assert.NoError(t, err, condition)
		assert.Equal(t, want, holds, condition)
	}
	for condition, want := range map[string]string{
		"stages.silent.outputs.done == 'yes'":           "no such key: done",
		"double(stages.my.outputs.done) > 1.0":          "no such key: my",
		"double(stages['my-stage'].outputs.done) > 1.0": "type conversion error from 'string' to 'double'",
		"'x' + 'y' > ": "Syntax error",
		// They make, of small texts, more than there is memory.
		"inputs.limit.replace('', inputs.limit) == ''": "undeclared reference to 'replace'",
		"[inputs.limit].join(inputs.limit) == ''":      "undeclared reference to 'join'",
	} {
		_, err := Holds(&aiplatformv1alpha1.Stage{Condition: condition}, values)
		assert.ErrorContains(t, err, want, condition)
	}
}

func TestAConditionThatTakesTooLongIsGivenUp(t *testing.T) {
	list := "[0,1,2,3,4,5,6,7,8,9]"
	condition := list + ".all(a, " + list + ".all(b, " + list + ".all(c, " + list + ".all(d, " + list + ".all(e, " + list +
		".all(f, a+b+c+d+e+f >= 0))))))"
	began := time.Now()
	_, err := Holds(&aiplatformv1alpha1.Stage{Condition: condition}, Values{})
	assert.ErrorContains(t, err, "cost limit exceeded")
	assert.Less(t, time.Since(began), 5*time.Second)
}

func TestTriggers(t *testing.T) {
	now := time.Date(2030, 1, 2, 8, 0, 0, 0, time.UTC)
	trigger := func(kind aiplatformv1alpha1.TriggerType, config inputs) *aiplatformv1alpha1.Trigger {
		return &aiplatformv1alpha1.Trigger{Type: kind, Config: config}
	}
	for _, right := range []*aiplatformv1alpha1.Trigger{
		trigger("", nil), trigger("manual", nil), trigger("schedule", inputs{"schedule": "*/5 * * * 1-5"}),
		trigger("schedule", inputs{"schedule": "@daily"}), trigger("event", inputs{"kind": "Pod", "reason": "Killing"}),
	} {
		assert.Nil(t, CheckTrigger(right, now), "%v", right)
	}
	for want, wrong := range map[string]*aiplatformv1alpha1.Trigger{
		`spec.trigger.config.schedule: "0 3 * *" is no cron expression`:               trigger("schedule", inputs{"schedule": "0 3 * *"}),
		`spec.trigger.config.schedule: "0 25 * * *" is no cron expression`:            trigger("schedule", inputs{"schedule": "0 25 * * *"}),
		`spec.trigger.config.schedule: "0 3 30 2 *" has no time to come`:              trigger("schedule", inputs{"schedule": "0 3 30 2 *"}),
		`spec.trigger.config.schedule: "CRON_TZ=Asia/Tokyo 0 3 * * *" names a time z`: trigger("schedule", inputs{"schedule": "CRON_TZ=Asia/Tokyo 0 3 * * *"}),
		`spec.trigger.config.kind: is empty`:                                          trigger("event", inputs{"kind": "", "reason": "Killing"}),
		`spec.trigger.config.reason: is empty`:                                        trigger("event", inputs{"kind": "Pod", "reason": ""}),
	} {
		problem := CheckTrigger(wrong, now)
		require.NotNil(t, problem, want)
		assert.Equal(t, "InvalidTrigger", problem.Reason)
		assert.Contains(t, problem.Message, want)
	}
	schedule, err := Schedule(trigger("schedule", inputs{"schedule": "0 3 * * *"}), now)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2030, 1, 3, 3, 0, 0, 0, time.UTC), schedule.Next(now))
}
