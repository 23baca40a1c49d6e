// Package aijob has the admission webhook of AIJobs, and of AgentWorkflows, whose AIJobs the operator creates: it notes who creates one.
package aijob

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/dcnlab/spot-training-operator/internal/webhook/creator"
)

// DefaultingPath is the path of the webhook on the server.
const DefaultingPath = "/mutate-aiplatform-example-com-v1alpha1-aijob"

// The match conditions spare calls that would change nothing; the handler checks the same again, because OLM's webhook
// definitions have no match conditions.

// +kubebuilder:webhook:path=/mutate-aiplatform-example-com-v1alpha1-aijob,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,reinvocationPolicy=Never,groups=aiplatform.example.com,resources=aijobs;agentworkflows,verbs=create;update,versions=v1alpha1,name=maijob.aiplatform.example.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"user-is-to-be-noted","expression":"request.operation == 'CREATE' || (has(object.metadata.annotations) && 'aiplatform.example.com/user' in object.metadata.annotations ? object.metadata.annotations['aiplatform.example.com/user'] : '') != (has(oldObject.metadata.annotations) && 'aiplatform.example.com/user' in oldObject.metadata.annotations ? oldObject.metadata.annotations['aiplatform.example.com/user'] : '')"}]}`

// Register adds the webhook to a server. Trusted are the names of users who create jobs for others, and may say for whom: the job service
// and the operator itself.
func Register(server webhook.Server, trusted []string) {
	note := func(_ context.Context, request admission.Request) admission.Response {
		if request.SubResource != "" {
			return admission.Allowed("")
		}
		patches, warnings := creator.Note(request, trusted)
		return admission.Patched("", patches...).WithWarnings(warnings...)
	}
	server.Register(DefaultingPath, &admission.Webhook{Handler: admission.HandlerFunc(note)})
}
