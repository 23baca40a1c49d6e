package http

import (
	"errors"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
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
	Edges        []workflowEdge    `json:"edges"`
	Results      map[string]string `json:"results"`
}

type workflowStage struct {
	Name        string       `json:"name"`
	Agent       string       `json:"agent"`
	DependsOn   []string     `json:"depends_on"`
	Condition   *string      `json:"condition"`
	Phase       string       `json:"phase"`
	JobName     *string      `json:"job_name"`
	StartedAt   *metav1.Time `json:"started_at"`
	CompletedAt *metav1.Time `json:"completed_at"`
	Message     *string      `json:"message"`
}

// workflowEdge leads from a stage to one that depends on it.
type workflowEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (s *service) getWorkflow(c *call) error {
	if err := c.query().problem("the query is wrong"); err != nil {
		return err
	}
	namespace, name := c.PathValue("namespace"), c.PathValue("name")
	missing := notFound("there is no AgentWorkflow of that name, or the token is not good for its namespace")
	if s.Kubernetes == nil || !isLabel(namespace) || !isLabel(name) {
		return missing
	}
	err := s.access.Check(c.Context(), c.identity, auth.Attributes{Verb: "get", Resource: auth.Workflows, Namespace: namespace, Name: name})
	if problemOfNil(err).status == http.StatusForbidden {
		return missing
	}
	if err != nil {
		return err
	}
	workflow, err := s.Kubernetes.Workflow(c.Context(), namespace, name)
	if errors.Is(err, jobs.ErrNotFound) {
		return missing
	}
	if err != nil {
		return err
	}
	return c.answerValue(http.StatusOK, graph(workflow))
}

// graph of a workflow. What has not been looked at yet is pending.
func graph(w *aiplatformv1alpha1.AgentWorkflow) workflowAnswer {
	pending := strings.ToLower(string(aiplatformv1alpha1.StagePending))
	answer := workflowAnswer{
		Namespace: w.Namespace, Name: w.Name, Trigger: string(w.Spec.Trigger.Type), Phase: strings.ToLower(string(w.Status.Phase)),
		CurrentStage: textOrNil(w.Status.CurrentStage), StartedAt: w.Status.StartTime, CompletedAt: w.Status.CompletionTime,
		Stages: []workflowStage{}, Edges: []workflowEdge{}, Results: map[string]string{},
	}
	if answer.Trigger == "" {
		answer.Trigger = string(aiplatformv1alpha1.TriggerManual)
	}
	if answer.Phase == "" {
		answer.Phase = pending
	}
	for name, value := range w.Status.Results {
		answer.Results[name] = value
	}
	for i := range w.Spec.Stages {
		spec := &w.Spec.Stages[i]
		stage := workflowStage{
			Name: string(spec.Name), Agent: spec.Agent, DependsOn: []string{}, Condition: textOrNil(spec.Condition), Phase: pending,
		}
		for _, from := range spec.DependsOn {
			stage.DependsOn = append(stage.DependsOn, string(from))
			answer.Edges = append(answer.Edges, workflowEdge{string(from), stage.Name})
		}
		for j := range w.Status.Stages {
			if status := &w.Status.Stages[j]; status.Name == spec.Name && status.Phase != "" {
				stage.Phase = strings.ToLower(string(status.Phase))
				stage.JobName, stage.Message = textOrNil(status.JobName), textOrNil(status.Message)
				stage.StartedAt, stage.CompletedAt = status.StartTime, status.CompletionTime
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
