// Package agentworkflow has the validating admission webhook of AgentWorkflows. It refuses conditions of stages that can never be
// evaluated: the schema cannot compile them. What depends on Agents is reported by the condition Ready, because objects are often applied
// in any order.
package agentworkflow

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// Handle implements admission.Handler. A problem that the stored workflow has already does not keep it from being changed.
func (v *validator) Handle(_ context.Context, request admission.Request) admission.Response {
	var workflow, old aiplatformv1alpha1.AgentWorkflow
	if request.SubResource != "" || v.decoder.Decode(request, &workflow) != nil || workflow.DeletionTimestamp != nil {
		return admission.Allowed("") // what cannot be read, the API server says better
	}
	problems := workflowspec.CheckConditions(&workflow)
	if len(problems) > 0 && request.Operation == admissionv1.Update && v.decoder.DecodeRaw(request.OldObject, &old) == nil {
		before := workflowspec.CheckConditions(&old)
		problems = slices.DeleteFunc(problems, func(is *field.Error) bool {
			return slices.ContainsFunc(before, func(was *field.Error) bool { return is.BadValue == was.BadValue && is.Detail == was.Detail })
		})
	}
	if len(problems) == 0 {
		return admission.Allowed("")
	}
	status := apierrors.NewInvalid(aiplatformv1alpha1.GroupVersion.WithKind("AgentWorkflow").GroupKind(), workflow.Name, problems).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}
