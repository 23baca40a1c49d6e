package workflowspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// Problem is why a workflow or one of its stages cannot start.
type Problem struct {
	// Reason is the reason of the condition Ready.
	Reason string
	// Message names the field and the remedy.
	Message string
}

// Upstream are the stages that each stage depends on, directly or through others.
func Upstream(stages []aiplatformv1alpha1.Stage) map[aiplatformv1alpha1.StageName]map[aiplatformv1alpha1.StageName]bool {
	all := map[aiplatformv1alpha1.StageName]map[aiplatformv1alpha1.StageName]bool{}
	for i := range stages { // each is listed after those that it depends on
		before := map[aiplatformv1alpha1.StageName]bool{}
		for _, name := range stages[i].DependsOn {
			before[name] = true
			maps.Copy(before, all[name])
		}
		all[stages[i].Name] = before
	}
	return all
}

// Check says by stage what is wrong with a workflow, given the agents of its namespace. A stage whose agent is missing is
// not looked at further.
func Check(workflow *aiplatformv1alpha1.AgentWorkflow, agents map[string]*aiplatformv1alpha1.Agent) map[aiplatformv1alpha1.StageName]Problem {
	c := checker{workflow: workflow, agents: agents, upstream: Upstream(workflow.Spec.Stages)}
	problems := map[aiplatformv1alpha1.StageName]Problem{}
	for i := range workflow.Spec.Stages {
		stage := &workflow.Spec.Stages[i]
		if problem := c.stage(fmt.Sprintf("spec.stages[%d]", i), stage); problem != nil {
			problems[stage.Name] = *problem
		}
	}
	return problems
}

// CheckConditions says which conditions can never be evaluated, as far as the workflow alone shows it: those that do not compile, or that
// refer to what the workflow does not have. Whether an Agent has an output is not checked.
func CheckConditions(workflow *aiplatformv1alpha1.AgentWorkflow) field.ErrorList {
	c := checker{workflow: workflow, upstream: Upstream(workflow.Spec.Stages)}
	var found field.ErrorList
	for i := range workflow.Spec.Stages {
		stage := &workflow.Spec.Stages[i]
		if problem := c.condition(stage); problem != "" {
			found = append(found, field.Invalid(field.NewPath("spec", "stages").Index(i).Child("condition"), stage.Condition, problem))
		}
	}
	return found
}

type checker struct {
	workflow *aiplatformv1alpha1.AgentWorkflow
	agents   map[string]*aiplatformv1alpha1.Agent
	upstream map[aiplatformv1alpha1.StageName]map[aiplatformv1alpha1.StageName]bool
}

func (c checker) stage(path string, stage *aiplatformv1alpha1.Stage) *Problem {
	agent := c.agents[stage.Agent]
	if agent == nil {
		return &Problem{reasons.AgentNotFound, fmt.Sprintf(
			"%s.agent: Agent %s does not exist in namespace %s: create it or correct the name", path, stage.Agent, c.workflow.Namespace)}
	}
	if problem := CheckAgent(agent); problem != "" {
		return &Problem{reasons.InvalidAgent, fmt.Sprintf("%s.agent: Agent %s: %s", path, stage.Agent, problem)}
	}
	if problem := c.inputs(path, stage, agent); problem != "" {
		return &Problem{reasons.InvalidReference, problem}
	}
	for i, output := range stage.Outputs {
		if !yields(agent, output) {
			return &Problem{reasons.InvalidReference, fmt.Sprintf(
				"%s.outputs[%d]: Agent %s has no output %s%s", path, i, agent.Name, output, outputsOf(agent))}
		}
	}
	if problem := c.condition(stage); problem != "" {
		return &Problem{reasons.InvalidReference, path + ".condition: " + problem}
	}
	return nil
}

func (c checker) inputs(path string, stage *aiplatformv1alpha1.Stage, agent *aiplatformv1alpha1.Agent) string {
	for _, name := range slices.Sorted(maps.Keys(stage.Inputs)) {
		at := fmt.Sprintf("%s.inputs.%s", path, name)
		if !slices.ContainsFunc(agent.Spec.Inputs, func(i aiplatformv1alpha1.AgentInput) bool { return string(i.Name) == name }) {
			return fmt.Sprintf("%s: Agent %s has no such input%s", at, agent.Name, inputsOf(agent))
		}
		found, err := references(stage.Inputs[name])
		if err != nil {
			return at + ": " + err.Error()
		}
		for _, r := range found {
			if r.stage != "" && !slices.Contains(stage.DependsOn, aiplatformv1alpha1.StageName(r.stage)) {
				return fmt.Sprintf("%s: refers to stage %s, which is not in dependsOn: add it there", at, r.stage)
			}
			if problem := c.reference(r); problem != "" {
				return at + ": " + problem
			}
		}
	}
	for i := range agent.Spec.Inputs {
		input := &agent.Spec.Inputs[i]
		if _, given := stage.Inputs[string(input.Name)]; !given && input.Default == nil && ptr.Deref(input.Required, true) {
			return fmt.Sprintf("%s.inputs: lacks %s, which Agent %s requires: add it", path, input.Name, agent.Name)
		}
	}
	return ""
}

// reference says what is wrong with a reference to something that the stage may refer to.
func (c checker) reference(r reference) string {
	if r.stage == "" {
		if _, ok := c.workflow.Spec.Inputs[r.input]; !ok {
			return fmt.Sprintf("refers to the workflow's input %s, which spec.inputs does not have: add it there", r.input)
		}
		return ""
	}
	if rest, other := strings.CutPrefix(r.output, "."); other {
		return fmt.Sprintf("stages.%s has no %s: write stages.%s.outputs.OUTPUT", r.stage, rest, r.stage)
	}
	for i := range c.workflow.Spec.Stages {
		stage := &c.workflow.Spec.Stages[i]
		agent := c.agents[stage.Agent]
		if string(stage.Name) != r.stage || agent == nil || r.output == "" {
			continue
		}
		if !yields(agent, aiplatformv1alpha1.ParameterName(r.output)) {
			return fmt.Sprintf("refers to output %s of stage %s, but its Agent %s has no such output%s", r.output, r.stage, agent.Name, outputsOf(agent))
		}
	}
	return ""
}

func (c checker) condition(stage *aiplatformv1alpha1.Stage) string {
	if stage.Condition == "" {
		return ""
	}
	ast, err := compile(stage.Condition)
	if err != nil {
		return err.Error()
	}
	for _, r := range mentioned(ast) {
		if r.stage != "" && !c.upstream[stage.Name][aiplatformv1alpha1.StageName(r.stage)] {
			return fmt.Sprintf("refers to stage %s, which stage %s does not depend on: add it to dependsOn", r.stage, stage.Name)
		}
		if problem := c.reference(r); problem != "" {
			return problem
		}
	}
	return ""
}

func yields(agent *aiplatformv1alpha1.Agent, output aiplatformv1alpha1.ParameterName) bool {
	return slices.ContainsFunc(agent.Spec.Outputs, func(o aiplatformv1alpha1.AgentOutput) bool { return o.Name == output })
}

// outputsOf ends a sentence with the outputs that there are.
func outputsOf(agent *aiplatformv1alpha1.Agent) string {
	return choices(agent.Spec.Outputs, func(output aiplatformv1alpha1.AgentOutput) aiplatformv1alpha1.ParameterName { return output.Name })
}

func inputsOf(agent *aiplatformv1alpha1.Agent) string {
	return choices(agent.Spec.Inputs, func(input aiplatformv1alpha1.AgentInput) aiplatformv1alpha1.ParameterName { return input.Name })
}

func choices[T any](all []T, nameOf func(T) aiplatformv1alpha1.ParameterName) string {
	if len(all) == 0 {
		return ": it has none"
	}
	var names []string
	for _, one := range all {
		names = append(names, string(nameOf(one)))
	}
	return ": it has " + strings.Join(names, ", ")
}
