package workflow

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// observedAgent is all that the plan of an Agent is made from.
type observedAgent struct {
	agent     *aiplatformv1alpha1.Agent
	workflows []aiplatformv1alpha1.AgentWorkflow // of the agent's namespace
	now       time.Time
}

// planAgent returns the status that the agent should have.
func planAgent(o observedAgent) aiplatformv1alpha1.AgentStatus {
	status := *o.agent.Status.DeepCopy()
	status.ObservedGeneration = o.agent.Generation
	status.Workflows = 0
	for i := range o.workflows {
		uses := slices.ContainsFunc(o.workflows[i].Spec.Stages, func(s aiplatformv1alpha1.Stage) bool { return s.Agent == o.agent.Name })
		if uses && o.workflows[i].DeletionTimestamp == nil {
			status.Workflows++
		}
	}
	if problem := workflowspec.Problem(o.agent); problem != "" {
		setAgentReady(&status, o, metav1.ConditionFalse, reasons.InvalidAgent, problem)
	} else {
		setAgentReady(&status, o, metav1.ConditionTrue, reasons.Ready, "workflows can use the agent")
	}
	return status
}
