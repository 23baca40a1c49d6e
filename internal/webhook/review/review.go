// Package review has what the admission webhooks share that look at the cluster: who may be answered from what, the questions to the API
// server and what its answers mean, and how a webhook refuses and warns.
package review

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Cluster is what a webhook may look at beside the object of a request.
type Cluster struct {
	Asker

	// FromAPIServer says whether a request is known to come from the API server. The others may come from anyone, in the name of anyone: they are
	// answered from the object alone. Nil: none is known.
	FromAPIServer func(*http.Request) bool
}

// Register adds a webhook to a server: the handler with an Asker is for requests of the API server, that with an empty one for any other.
func (c Cluster) Register(server webhook.Server, path string, handler func(Asker) admission.Handler) {
	toAnyone, toAPIServer := &admission.Webhook{Handler: handler(Asker{})}, &admission.Webhook{Handler: handler(c.Asker)}
	answer := http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if c.FromAPIServer != nil && c.FromAPIServer(request) {
			toAPIServer.ServeHTTP(response, request)
		} else {
			toAnyone.ServeHTTP(response, request)
		}
	})
	server.Register(path, answer)
	server.Register(path+"/", answer) // with a token behind it
}

// Refuse denies a request as the API server itself does with an invalid object.
func Refuse(kind schema.GroupKind, causes []metav1.StatusCause) admission.Response {
	messages := make([]string, 0, len(causes))
	for _, cause := range causes {
		messages = append(messages, cause.Field+": "+cause.Message)
	}
	response := admission.Denied(strings.Join(messages, "; "))
	response.Result.Code, response.Result.Reason = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid
	response.Result.Details = &metav1.StatusDetails{Group: kind.Group, Kind: kind.Kind, Causes: causes}
	return response
}

// Invalid is the cause of a refusal.
func Invalid(field, message string) metav1.StatusCause {
	return metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
}

// Unreadable is why an object is refused whose typed form cannot be had: once stored, it would keep every client from listing the objects
// of the whole cluster.
func Unreadable(kind string, err error) metav1.StatusCause {
	return Invalid("spec", fmt.Sprintf("cannot be read as a %s: %v: correct the value", kind, err))
}

// MostWarnings bounds what is told at once: the API server cuts warnings short when they get many.
const MostWarnings = 20

// Warn admits a request with warnings, also of what there was no answer about.
func Warn(warnings, unchecked []string) admission.Response {
	if len(unchecked) > 0 {
		warnings = append(warnings, fmt.Sprintf("could not be checked, because the API server gave no answer: %s: the conditions in the status will tell",
			strings.Join(unchecked, ", ")))
	}
	if len(warnings) > MostWarnings {
		more := len(warnings) - MostWarnings + 1
		warnings = append(warnings[:MostWarnings-1], fmt.Sprintf("and %d more", more))
	}
	return admission.Allowed("").WithWarnings(warnings...)
}
