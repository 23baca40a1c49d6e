package rest

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec/graph"
)

// workflowAnswer is the graph of an AgentWorkflow: the stages, and an edge for each dependency.
type workflowAnswer struct {
	Namespace    string            `json:"namespace"`
	Name         string            `json:"name"`
	Trigger      string            `json:"trigger"`
	Phase        string            `json:"phase"`
	CurrentStage *string           `json:"current_stage"`
	StartedAt    *metav1.Time      `json:"started_at"`
	CompletedAt  *metav1.Time      `json:"completed_at"`
	Stages       []workflowStage   `json:"stages"`
	Edges        []graph.Edge      `json:"edges"`
	Results      map[string]string `json:"results"`
}

type workflowStage struct {
	Name        string     `json:"name"`
	Agent       string     `json:"agent"`
	DependsOn   []string   `json:"depends_on"`
	Condition   *string    `json:"condition"`
	Phase       string     `json:"phase"`
	JobName     *string    `json:"job_name"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
	Message     *string    `json:"message"`
}

func (s *service) getWorkflow(c *call) ([]byte, error) {
	namespace, name := c.PathValue("namespace"), c.PathValue("name")
	if s.Kubernetes == nil || !isLabel(namespace) || !isLabel(name) {
		return nil, jobs.ErrNotFound
	}
	err := s.access.Check(c.Context(), c.identity, auth.Attributes{Verb: "get", Resource: auth.Workflows, Namespace: namespace, Name: name})
	if err != nil {
		return nil, hidden(err)
	}
	workflow, err := s.Kubernetes.Workflow(c.Context(), namespace, name)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answerOf(workflow))
}

// answerOf is the answer about a workflow. What has not been looked at yet is pending.
func answerOf(w *aiplatformv1alpha1.AgentWorkflow) workflowAnswer {
	drawn := graph.Of(w)
	answer := workflowAnswer{
		Namespace: w.Namespace, Name: w.Name,
		Trigger:      cmp.Or(string(w.Spec.Trigger.Type), string(aiplatformv1alpha1.TriggerManual)),
		Phase:        strings.ToLower(cmp.Or(string(w.Status.Phase), string(aiplatformv1alpha1.StagePending))),
		CurrentStage: textOrNil(w.Status.CurrentStage), StartedAt: w.Status.StartTime, CompletedAt: w.Status.CompletionTime,
		Stages: []workflowStage{}, Edges: drawn.Edges, Results: map[string]string{},
	}
	maps.Copy(answer.Results, w.Status.Results)
	for i := range drawn.Stages {
		is := &drawn.Stages[i]
		stage := workflowStage{
			Name: is.Name, Agent: is.Agent, DependsOn: []string{}, Condition: textOrNil(is.Condition), Phase: strings.ToLower(is.Phase),
			JobName: textOrNil(is.Job), Message: textOrNil(is.Message), StartedAt: is.StartTime, CompletedAt: is.CompletionTime,
		}
		for _, edge := range drawn.Edges {
			if edge.To == is.Name {
				stage.DependsOn = append(stage.DependsOn, edge.From)
			}
		}
		answer.Stages = append(answer.Stages, stage)
	}
	return answer
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
