package workflowspec

import (
	"fmt"
	"regexp"
	"strings"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// reference is what $(...) in the value of an input stands for: an input of the workflow, or an output of a stage.
type reference struct{ input, stage, output string }

var (
	// begins finds what is meant to be a reference, and whole what is one. Other text in $(...) is text.
	begins = regexp.MustCompile(`\$\((inputs|stages)\.[^)]*\)?`)
	whole  = regexp.MustCompile(`^\$\((?:inputs\.([A-Za-z0-9_.-]+)|stages\.([a-z0-9-]+)\.outputs\.([A-Za-z0-9_-]+))\)$`)
)

// parse reads a reference.
func parse(text string) (reference, error) {
	parts := whole.FindStringSubmatch(text)
	if parts == nil {
		return reference{}, fmt.Errorf("%q is no reference: write $(inputs.NAME) or $(stages.STAGE.outputs.OUTPUT)", text)
	}
	return reference{input: parts[1], stage: parts[2], output: parts[3]}, nil
}

// references are those in the value of an input.
func references(value aiplatformv1alpha1.ParameterValue) ([]reference, error) {
	var found []reference
	for _, text := range begins.FindAllString(string(value), -1) {
		r, err := parse(text)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}

// Values are what references and conditions see.
type Values struct {
	// Inputs of the workflow.
	Inputs map[string]aiplatformv1alpha1.ParameterValue
	// Outputs of the stages that have Succeeded, by the name of the stage.
	Outputs map[aiplatformv1alpha1.StageName]map[string]string
}

func (v Values) of(r reference) (string, error) {
	if r.input != "" {
		value, ok := v.Inputs[r.input]
		if !ok {
			return "", fmt.Errorf("spec.inputs has no %s: add it", r.input)
		}
		return string(value), nil
	}
	value, ok := v.Outputs[aiplatformv1alpha1.StageName(r.stage)][r.output]
	if !ok {
		return "", fmt.Errorf("stage %s did not report the output %s: its container must write a JSON object with that name to "+
			"/dev/termination-log", r.stage, r.output)
	}
	return value, nil
}

// resolve puts values in the place of references. What a value has in it is not looked at again.
func (v Values) resolve(value aiplatformv1alpha1.ParameterValue) (string, error) {
	var failed error
	text := begins.ReplaceAllStringFunc(string(value), func(text string) string {
		r, err := parse(text)
		if err == nil {
			text, err = v.of(r)
		}
		if err != nil && failed == nil {
			failed = err
		}
		return text
	})
	return text, failed
}

// Input is an input as a container sees it.
type Input struct{ Name, Value string }

// Inputs are the inputs of a stage's agent in the agent's order, with references resolved. One that is neither given nor
// has a default is left out.
func Inputs(agent *aiplatformv1alpha1.Agent, stage *aiplatformv1alpha1.Stage, values Values) ([]Input, error) {
	var inputs []Input
	for i := range agent.Spec.Inputs {
		input := &agent.Spec.Inputs[i]
		given, ok := stage.Inputs[string(input.Name)]
		switch {
		case ok:
			value, err := values.resolve(given)
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", input.Name, err)
			}
			if strings.ContainsRune(value, 0) {
				return nil, fmt.Errorf("input %s: has a NUL byte, which no environment variable can hold", input.Name)
			}
			inputs = append(inputs, Input{EnvName(input.Name), value})
		case input.Default != nil:
			inputs = append(inputs, Input{EnvName(input.Name), *input.Default})
		}
	}
	return inputs, nil
}
