// Package agentworkflow has the validating admission webhook of AgentWorkflows. It refuses conditions of stages that can never be
// evaluated, which are no matter of the schema: they are compiled. What depends on Agents is told by the condition Ready, because objects
// are often applied in any order.
package agentworkflow

import (
	"context"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// ValidatingPath is the path of the webhook on the server.
const ValidatingPath = "/validate-aiplatform-example-com-v1alpha1-agentworkflow"

// The match condition spares calls that would change nothing; the handler checks the same again, because OLM's webhook
// definitions have no match conditions.

// +kubebuilder:webhook:path=/validate-aiplatform-example-com-v1alpha1-agentworkflow,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,groups=aiplatform.example.com,resources=agentworkflows,verbs=create;update,versions=v1alpha1,name=vagentworkflow.aiplatform.example.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"spec-is-new","expression":"request.operation == 'CREATE' || (!has(object.metadata.deletionTimestamp) && object.spec != oldObject.spec)"}]}`

// Register adds the webhook to a server.
func Register(server webhook.Server, scheme *runtime.Scheme) {
	server.Register(ValidatingPath, &admission.Webhook{Handler: &validator{decoder: admission.NewDecoder(scheme)}})
}

// validator refuses a workflow whose conditions are wrong.
type validator struct {
	decoder admission.Decoder
}

// Handle implements admission.Handler. A mistake that the stored workflow has already does not keep it from being changed.
func (v *validator) Handle(_ context.Context, request admission.Request) admission.Response {
	var workflow, old aiplatformv1alpha1.AgentWorkflow
	if request.SubResource != "" || v.decoder.Decode(request, &workflow) != nil || workflow.DeletionTimestamp != nil {
		return admission.Allowed("") // what cannot be read, the API server says better
	}
	mistakes := workflowspec.BadConditions(&workflow)
	if len(mistakes) > 0 && request.Operation == admissionv1.Update && v.decoder.DecodeRaw(request.OldObject, &old) == nil {
		before := workflowspec.BadConditions(&old)
		mistakes = slices.DeleteFunc(mistakes, func(mistake workflowspec.BadCondition) bool {
			return slices.ContainsFunc(before, func(other workflowspec.BadCondition) bool {
				return mistake.Stage == other.Stage && mistake.Message == other.Message
			})
		})
	}
	if len(mistakes) == 0 {
		return admission.Allowed("")
	}
	return refusal(mistakes)
}

// refusal denies a request as the API server itself does with an invalid object.
func refusal(mistakes []workflowspec.BadCondition) admission.Response {
	var messages []string
	var causes []metav1.StatusCause
	for _, mistake := range mistakes {
		messages = append(messages, mistake.Field+": "+mistake.Message)
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: mistake.Field, Message: mistake.Message})
	}
	response := admission.Denied(strings.Join(messages, "; "))
	response.Result.Code, response.Result.Reason = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid
	response.Result.Details = &metav1.StatusDetails{Group: aiplatformv1alpha1.GroupVersion.Group, Kind: "AgentWorkflow", Causes: causes}
	return response
}
