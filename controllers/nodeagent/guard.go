package nodeagent

import (
	"context"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// guardInterval is the time between two looks at the policy that limits the agent.
const guardInterval = 5 * time.Minute

// The policy and its binding have the agent's name.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=spot-training-operator-node-agent,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,namespace=system

// isGuarded says whether the policy of config/node-agent is in force, which limits the agent to its own Node. OLM cannot install it.
func isGuarded(ctx context.Context, reader client.Reader) (bool, error) {
	binding, err := reconciling.Get[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, reader, "", Name)
	if binding == nil || binding.Spec.PolicyName != Name || binding.Spec.MatchResources != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
		return false, err
	}
	policy, err := reconciling.Get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, reader, "", Name)
	return policy != nil && ptr.Deref(policy.Spec.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Fail, err
}

// tellUnguarded says in the log and by an event of the operator's Deployment, if there is one, why there is no agent.
func (r *Reconciler) tellUnguarded(ctx context.Context, manager *appsv1.Deployment) {
	const remedy = "no node agent runs on spot nodes: the ValidatingAdmissionPolicy " + Name + ", which limits it to its own Node, is not " +
		"installed: apply config/node-agent as docs/guide/spot-preemption.md says"
	log.FromContext(ctx).Info("Node agent is held back", "reason", remedy)
	if manager != nil {
		r.Recorder.Eventf(manager, nil, corev1.EventTypeWarning, reasons.EventNodeAgentUnguarded, "Apply", remedy)
	}
}
