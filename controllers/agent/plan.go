package agent

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/agents"
)

// observed is all that a plan is made from.
type observed struct {
	agent     *aiplatformv1alpha1.Agent
	workflows []aiplatformv1alpha1.AgentWorkflow // of the agent's namespace
	now       time.Time
}

// plan returns the status that the agent should have.
func plan(o observed) aiplatformv1alpha1.AgentStatus {
	status := *o.agent.Status.DeepCopy()
	status.ObservedGeneration = o.agent.Generation
	status.Workflows = 0
	for i := range o.workflows {
		uses := slices.ContainsFunc(o.workflows[i].Spec.Stages, func(s aiplatformv1alpha1.Stage) bool { return s.Agent == o.agent.Name })
		if uses && o.workflows[i].DeletionTimestamp == nil {
			status.Workflows++
		}
	}
	if problem := agents.Problem(o.agent); problem != "" {
		setReady(&status, o, metav1.ConditionFalse, aiplatformv1alpha1.ReasonInvalidAgent, problem)
	} else {
		setReady(&status, o, metav1.ConditionTrue, aiplatformv1alpha1.ReasonReady, "workflows can use the agent")
	}
	return status
}
