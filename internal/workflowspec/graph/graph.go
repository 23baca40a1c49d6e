// Package graph draws the stages of an AgentWorkflow: for kubectl describe, and as data for others to draw.
package graph

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Graph is a workflow's stages and how they depend on one another.
type Graph struct {
	// Stages in the order of the spec, each after those that it depends on.
	Stages []Stage `json:"stages"`
	// Edges lead from a stage to one that depends on it.
	Edges []Edge `json:"edges"`
}

// Stage is one stage as it stands.
type Stage struct {
	// Name of the stage.
	Name string `json:"name"`
	// Agent that it runs.
	Agent string `json:"agent"`
	// Phase is Pending, Running, Succeeded, Failed or Skipped.
	Phase string `json:"phase"`
	// Job is the AIJob in which it runs; empty before there is one.
	Job string `json:"job,omitempty"`
	// Condition on which it runs; empty for always.
	Condition string `json:"condition,omitempty"`
	// StartTime is when its AIJob first ran.
	StartTime *time.Time `json:"start_time,omitempty"`
	// CompletionTime is when it ended.
	CompletionTime *time.Time `json:"completion_time,omitempty"`
	// Message says why it is in its phase.
	Message string `json:"message,omitempty"`
}

// Edge is a dependency.
type Edge struct {
	// From is the stage that comes first.
	From string `json:"from"`
	// To is the stage that depends on it.
	To string `json:"to"`
}

// Of returns the graph of a workflow, with the phases of its last start.
func Of(workflow *aiplatformv1alpha1.AgentWorkflow) Graph {
	status := map[aiplatformv1alpha1.StageName]*aiplatformv1alpha1.StageStatus{}
	for i := range workflow.Status.Stages {
		status[workflow.Status.Stages[i].Name] = &workflow.Status.Stages[i]
	}
	graph := Graph{Stages: []Stage{}, Edges: []Edge{}}
	for i := range workflow.Spec.Stages {
		spec := &workflow.Spec.Stages[i]
		stage := Stage{
			Name: string(spec.Name), Agent: spec.Agent, Condition: spec.Condition, Phase: string(aiplatformv1alpha1.StagePending),
		}
		if is := status[spec.Name]; is != nil {
			if is.Phase != "" {
				stage.Phase = string(is.Phase)
			}
			stage.Job, stage.Message = is.JobName, is.Message
			stage.StartTime, stage.CompletionTime = moment(is.StartTime), moment(is.CompletionTime)
		}
		graph.Stages = append(graph.Stages, stage)
		for _, before := range spec.DependsOn {
			graph.Edges = append(graph.Edges, Edge{string(before), string(spec.Name)})
		}
	}
	return graph
}

func moment(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &utc
}
