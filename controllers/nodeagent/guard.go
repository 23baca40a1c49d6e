package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/accessreview"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// guardInterval is the time between two looks at the policy that limits the agent, and at the right that it limits.
const guardInterval = 5 * time.Minute

// The policy and its binding have the agent's name.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=spot-training-operator-node-agent,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,namespace=system

// lack says what the agent lacks of config/node-agent, and what to do; empty when it has all. OLM can install none of it, and one half
// may be there from before: the right came with the bundle once, and the policy held in one namespace.
func (r *Reconciler) lack(ctx context.Context) (string, error) {
	guarded, err := isGuarded(ctx, r.Direct, r.Settings.Namespace)
	if err != nil {
		return "", err
	}
	if !guarded {
		return "the ValidatingAdmissionPolicy " + Name + ", which limits it to its own Node, is not installed as this version has it: apply " +
			"config/node-agent/policy.yaml and config/node-agent/role.yaml as docs/guide/spot-preemption.md says", nil
	}
	may, err := r.mayMark(ctx)
	if err != nil || may {
		return "", err
	}
	return accountIn(r.Settings.Namespace) + " may not patch Nodes: apply config/node-agent/role.yaml, with the namespace " + r.Settings.Namespace +
		" in it, as docs/guide/spot-preemption.md says", nil
}

// isGuarded says whether the policy of config/node-agent is in force, which limits the agent to its own Node.
func isGuarded(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	binding, err := reconciling.Get[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, reader, "", Name)
	if binding == nil || binding.Spec.PolicyName != Name || binding.Spec.MatchResources != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
		return false, err
	}
	policy, err := reconciling.Get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, reader, "", Name)
	if policy == nil || ptr.Deref(policy.Spec.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Fail {
		return false, err
	}
	// Of a condition in other words it is not known whether it holds for the agent.
	return !slices.ContainsFunc(policy.Spec.MatchConditions, func(condition admissionregistrationv1.MatchCondition) bool {
		return !slices.Contains(conditionsFor(namespace), strings.Join(strings.Fields(condition.Expression), " "))
	}), nil
}

// conditionsFor are the match conditions that hold for the agent in a namespace: that of config/node-agent/policy.yaml, and that of version
// 0.3, which names one namespace.
func conditionsFor(namespace string) []string {
	return []string{
		fmt.Sprintf(`request.userInfo.username.startsWith("system:serviceaccount:") && request.userInfo.username.endsWith(":%s")`, Name),
		fmt.Sprintf("request.userInfo.username == %q", accountIn(namespace)),
	}
}

// accountIn is the agent's user name.
func accountIn(namespace string) string { return "system:serviceaccount:" + namespace + ":" + Name }

// mayMark asks the API server whether the agent may patch Nodes.
func (r *Reconciler) mayMark(ctx context.Context) (bool, error) {
	agent := authenticationv1.UserInfo{
		Username: accountIn(r.Settings.Namespace),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + r.Settings.Namespace, "system:authenticated"},
	}
	may, _, err := accessreview.Access(ctx, r.Reviews, agent, authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"},
	})
	if err != nil {
		return false, fmt.Errorf("ask whether the node agent may patch Nodes: %w", err)
	}
	return may, nil
}

// tellUnguarded says in the log and by an event of the operator's Deployment, if there is one, why there is no agent.
func (r *Reconciler) tellUnguarded(ctx context.Context, manager *appsv1.Deployment, lack string) {
	log.FromContext(ctx).Info("Node agent is held back", "reason", lack)
	if manager != nil {
		r.Recorder.Eventf(manager, nil, corev1.EventTypeWarning, reasons.EventNodeAgentUnguarded, "Apply", "no node agent runs on spot nodes: "+lack)
	}
}
