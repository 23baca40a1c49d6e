package rest

import (
	"cmp"
	"maps"
	"strings"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec/graph"
)

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
	return answerOf(workflow), nil
}

// answerOf is the answer about a workflow: its stages, and an edge for each dependency. What has not been looked at yet is pending.
func answerOf(w *aiplatformv1alpha1.AgentWorkflow) object {
	drawn := graph.Of(w)
	before := map[string][]string{}
	for _, edge := range drawn.Edges {
		before[edge.To] = append(before[edge.To], edge.From)
	}
	results := map[string]string{}
	maps.Copy(results, w.Status.Results)
	o := begin(nil).text("namespace", w.Namespace).text("name", w.Name).
		text("trigger", cmp.Or(string(w.Spec.Trigger.Type), string(aiplatformv1alpha1.TriggerManual))).
		text("phase", strings.ToLower(cmp.Or(string(w.Status.Phase), string(aiplatformv1alpha1.StagePending)))).
		textOrNull("current_stage", w.Status.CurrentStage).
		value("started_at", w.Status.StartTime).value("completed_at", w.Status.CompletionTime)
	o = list(o, "stages", drawn.Stages, func(out []byte, is *graph.Stage) object {
		return begin(out).text("name", is.Name).text("agent", is.Agent).value("depends_on", append([]string{}, before[is.Name]...)).
			textOrNull("condition", is.Condition).text("phase", strings.ToLower(is.Phase)).textOrNull("job_name", is.Job).
			value("started_at", is.StartTime).value("completed_at", is.CompletionTime).textOrNull("message", is.Message).end()
	})
	return o.value("edges", drawn.Edges).value("results", results).end()
}
