// Package aijob has the admission webhook of AIJobs, and of AgentWorkflows, whose AIJobs the operator creates. It notes who
// creates one, because the limits of queues count what each user's jobs hold: only the request says who that is.
package aijob

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// DefaultingPath is the path of the webhook on the server.
const DefaultingPath = "/mutate-aiplatform-example-com-v1alpha1-aijob"

// Options of the webhook.
type Options struct {
	// Trusted are the names of users who create jobs for others, and may say for whom: the job service and the operator itself.
	Trusted []string
}

// The match conditions spare calls that would change nothing; the handler checks the same again, because OLM's webhook
// definitions have no match conditions.

// +kubebuilder:webhook:path=/mutate-aiplatform-example-com-v1alpha1-aijob,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,reinvocationPolicy=Never,groups=aiplatform.example.com,resources=aijobs;agentworkflows,verbs=create;update,versions=v1alpha1,name=maijob.aiplatform.example.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"user-is-to-be-noted","expression":"request.operation == 'CREATE' || (has(object.metadata.annotations) && 'aiplatform.example.com/user' in object.metadata.annotations ? object.metadata.annotations['aiplatform.example.com/user'] : '') != (has(oldObject.metadata.annotations) && 'aiplatform.example.com/user' in oldObject.metadata.annotations ? oldObject.metadata.annotations['aiplatform.example.com/user'] : '')"}]}`

// Register adds the webhook to a server.
func Register(server webhook.Server, o Options) {
	server.Register(DefaultingPath, &admission.Webhook{Handler: &defaulter{trusted: o.Trusted}})
}

// defaulter sets the annotation with the user.
type defaulter struct {
	trusted []string
}

// Handle implements admission.Handler. It patches the one annotation of the object as it was sent, so that nothing else of what
// the user wrote is put differently.
func (d *defaulter) Handle(_ context.Context, request admission.Request) admission.Response {
	if request.SubResource != "" {
		return admission.Allowed("")
	}
	annotations, ok := annotationsOf(request.Object.Raw)
	if !ok { // the API server says better what is wrong
		return admission.Allowed("")
	}
	given, isGiven := annotations[aiplatformv1alpha1.AnnotationUser]
	want, why := "", ""
	switch request.Operation {
	case admissionv1.Create:
		want, why = request.UserInfo.Username, "it is the user who creates it"
		if slices.Contains(d.trusted, request.UserInfo.Username) {
			want = given // empty: nobody's
		}
	case admissionv1.Update:
		before, _ := annotationsOf(request.OldObject.Raw)
		want, why = before[aiplatformv1alpha1.AnnotationUser], "it cannot be changed"
	default:
		return admission.Allowed("")
	}
	if given == want && (isGiven || want == "") {
		return admission.Allowed("")
	}
	response := admission.Patched("", patch(annotations != nil, isGiven, want)...)
	if given != "" && given != want {
		response.Warnings = []string{fmt.Sprintf("metadata.annotations[%s]: is %q, and not %q as written: %s",
			aiplatformv1alpha1.AnnotationUser, want, given, why)}
	}
	return response
}

// patch of an object that has annotations, and this one among them, or not.
func patch(annotated, this bool, want string) []jsonpatch.Operation {
	path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(aiplatformv1alpha1.AnnotationUser)
	switch {
	case want == "":
		return []jsonpatch.Operation{jsonpatch.NewOperation("remove", path, nil)}
	case !annotated:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/annotations",
			map[string]string{aiplatformv1alpha1.AnnotationUser: want})}
	case this:
		return []jsonpatch.Operation{jsonpatch.NewOperation("replace", path, want)}
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", path, want)}
}

// annotationsOf are those of an object in JSON; nil when it has none, false when they cannot be read.
func annotationsOf(raw []byte) (map[string]string, bool) {
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return nil, false
	}
	return object.Metadata.Annotations, true
}
