// Package workflowspec knows what Agents and AgentWorkflows mean: how an input reaches a container, what a reference stands for,
// what a condition yields, and what is wrong with them. It talks to no server.
package workflowspec

import (
	"fmt"
	"strings"
	"unicode"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
)

// EnvName is the environment variable by which a container sees an input: INPUT_ and the name in upper snake case, so that
// maxTokens is INPUT_MAX_TOKENS.
func EnvName(input aiplatformv1alpha1.ParameterName) string {
	var name strings.Builder
	name.WriteString("INPUT_")
	before := ' '
	for _, letter := range string(input) {
		if unicode.IsUpper(letter) && (unicode.IsLower(before) || unicode.IsDigit(before)) {
			name.WriteByte('_')
		}
		if letter == '-' {
			letter = '_'
		}
		name.WriteRune(unicode.ToUpper(letter))
		before = letter
	}
	return name.String()
}

// EnvValue is the value of an environment variable whose container sees exactly the given text: the kubelet replaces
// $(NAME) and $$ in values, and what one program yields must not read the variables of the next.
func EnvValue(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// longestEnv is the number of environment variables that an AIJob may have.
const longestEnv = 256

// CheckAgent says in a sentence why no stage can be made from an agent, with the field and the remedy; empty when one can.
func CheckAgent(agent *aiplatformv1alpha1.Agent) string {
	spec := &agent.Spec
	if len(spec.Env)+len(spec.Inputs) > longestEnv {
		return fmt.Sprintf("spec.env: has %d variables, and with those of the %d inputs more than %d: remove some",
			len(spec.Env), len(spec.Inputs), longestEnv)
	}
	inputs := map[string]aiplatformv1alpha1.ParameterName{}
	for i, input := range spec.Inputs {
		name := EnvName(input.Name)
		if other, taken := inputs[name]; taken {
			return fmt.Sprintf("spec.inputs[%d].name: %s and %s would both be the environment variable %s: rename one of the two",
				i, other, input.Name, name)
		}
		inputs[name] = input.Name
	}
	for i := range spec.Env {
		if input, taken := inputs[spec.Env[i].Name]; taken {
			return fmt.Sprintf("spec.env[%d].name: %s is the environment variable of input %s: rename one of the two",
				i, spec.Env[i].Name, input)
		}
	}
	if field, message := podbuild.Conflict(&spec.Settings, spec.Source, spec.Resources, 0); field != "" {
		return field + ": " + message
	}
	return ""
}
