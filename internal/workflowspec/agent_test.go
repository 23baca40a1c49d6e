package workflowspec

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

func TestEnvName(t *testing.T) {
	for input, want := range map[aiplatformv1alpha1.ParameterName]string{
		"text": "INPUT_TEXT", "max-tokens": "INPUT_MAX_TOKENS", "maxTokens": "INPUT_MAX_TOKENS", "max_tokens": "INPUT_MAX_TOKENS",
		"URL": "INPUT_URL", "top5Results": "INPUT_TOP5_RESULTS", "_x": "INPUT__X",
	} {
		assert.Equal(t, want, EnvName(input), input)
	}
}

func agentOf(inputs ...aiplatformv1alpha1.AgentInput) *aiplatformv1alpha1.Agent {
	return &aiplatformv1alpha1.Agent{Spec: aiplatformv1alpha1.AgentSpec{Inputs: inputs}}
}

func TestCheckAgent(t *testing.T) {
	assert.Empty(t, CheckAgent(agentOf(aiplatformv1alpha1.AgentInput{Name: "a"}, aiplatformv1alpha1.AgentInput{Name: "b"})))

	same := agentOf(aiplatformv1alpha1.AgentInput{Name: "max-tokens"}, aiplatformv1alpha1.AgentInput{Name: "maxTokens"})
	assert.Equal(t, "spec.inputs[1].name: max-tokens and maxTokens would both be the environment variable INPUT_MAX_TOKENS: rename one of the two",
		CheckAgent(same))

	taken := agentOf(aiplatformv1alpha1.AgentInput{Name: "text"})
	taken.Spec.Env = []corev1.EnvVar{{Name: "MODEL"}, {Name: "INPUT_TEXT"}}
	assert.Equal(t, "spec.env[1].name: INPUT_TEXT is the environment variable of input text: rename one of the two", CheckAgent(taken))

	many := agentOf(aiplatformv1alpha1.AgentInput{Name: "text"})
	many.Spec.Env = make([]corev1.EnvVar, 256)
	assert.Contains(t, CheckAgent(many), "spec.env: has 256 variables")
}

func TestInputs(t *testing.T) {
	agent := agentOf(
		aiplatformv1alpha1.AgentInput{Name: "text"}, aiplatformv1alpha1.AgentInput{Name: "length", Default: ptr.To("3")},
		aiplatformv1alpha1.AgentInput{Name: "style", Required: ptr.To(false)},
	)
	values := Values{
		Inputs:  map[string]aiplatformv1alpha1.ParameterValue{"document": "https://example.com/a", "sly": "$(inputs.document)"},
		Outputs: map[aiplatformv1alpha1.StageName]map[string]string{"read": {"title": "On $(HOME)"}},
	}
	tests := map[string]struct {
		given map[string]aiplatformv1alpha1.ParameterValue
		want  []Input
		fails string
	}{
		"a text, and a default": {
			given: map[string]aiplatformv1alpha1.ParameterValue{"text": "hello"},
			want:  []Input{{"INPUT_TEXT", "hello"}, {"INPUT_LENGTH", "3"}},
		},
		"a default is overruled, even by nothing": {
			given: map[string]aiplatformv1alpha1.ParameterValue{"text": "", "length": ""},
			want:  []Input{{"INPUT_TEXT", ""}, {"INPUT_LENGTH", ""}},
		},
		"references within a text": {
			given: map[string]aiplatformv1alpha1.ParameterValue{"text": "$(stages.read.outputs.title): $(inputs.document)", "style": "$(HOME) $5"},
			want:  []Input{{"INPUT_TEXT", "On $(HOME): https://example.com/a"}, {"INPUT_LENGTH", "3"}, {"INPUT_STYLE", "$(HOME) $5"}},
		},
		"what a value has in it is no reference": {
			given: map[string]aiplatformv1alpha1.ParameterValue{"text": "$(inputs.sly)"},
			want:  []Input{{"INPUT_TEXT", "$(inputs.document)"}, {"INPUT_LENGTH", "3"}},
		},
		"an output that was not reported": {
			given: map[string]aiplatformv1alpha1.ParameterValue{"text": "$(stages.read.outputs.author)"},
			fails: "input text: stage read did not report the output author: its container must write a JSON object with that name to /dev/termination-log",
		},
		"a byte that no variable can hold": {
			given: map[string]aiplatformv1alpha1.ParameterValue{"text": "a\x00b"},
			fails: "input text: has a NUL byte, which no environment variable can hold",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Inputs(agent, &aiplatformv1alpha1.Stage{Inputs: test.given}, values)
			if test.fails != "" {
				assert.EqualError(t, err, test.fails)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestEnvValueIsWhatTheContainerSees(t *testing.T) {
	assert.Equal(t, "$$(SECRET) costs $$$$5", EnvValue("$(SECRET) costs $$5"))
}
