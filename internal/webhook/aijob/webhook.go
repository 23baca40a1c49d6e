// Package aijob has the admission webhook of AIJobs, and of AgentWorkflows, whose AIJobs the operator creates: it notes who creates one,
// refuses an AIJob whose settings do not go together, and warns of variables that have no effect.
package aijob

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/webhook/creator"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
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
		refused, ignored := check(request)
		if len(refused) > 0 {
			return review.Refuse(aiplatformv1alpha1.GroupVersion.WithKind("AIJob").GroupKind(), refused)
		}
		patches, warnings := creator.Note(request, trusted)
		return admission.Patched("", patches...).WithWarnings(append(warnings, ignored...)...)
	}
	server.Register(DefaultingPath, &admission.Webhook{Handler: admission.HandlerFunc(note)})
}

// check says why a new AIJob is refused whose settings do not go together, or else which of its variables its containers do not get.
func check(request admission.Request) (refused []metav1.StatusCause, ignored []string) {
	var job aiplatformv1alpha1.AIJob
	if request.Operation != admissionv1.Create || request.Resource.Resource != "aijobs" || json.Unmarshal(request.Object.Raw, &job) != nil {
		return nil, nil
	}
	if field, message := podbuild.Conflict(&job.Spec.Settings, job.Spec.Source, job.Spec.Resources, 0); field != "" {
		return []metav1.StatusCause{review.Invalid(field, message)}, nil
	}
	for _, name := range aiplatformv1alpha1.IgnoredVariables(&job.Spec) {
		ignored = append(ignored, fmt.Sprintf("spec.env[%s]: has no effect: the operator sets it, because the members of a gang find each other by it: remove it", name))
	}
	return nil, ignored
}
