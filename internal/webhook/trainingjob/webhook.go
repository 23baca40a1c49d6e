// Package trainingjob has the admission webhooks of TrainingJob. The schema and the CEL rules of the API hold all that
// needs only the object; here is what needs the installation or the cluster: the default that an upgrade of the operator must not change,
// and what the job refers to. What may still come is a warning, because objects are often applied in any order; only what can never work
// is refused.
package trainingjob

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// Paths of the webhooks on the server.
const (
	DefaultingPath = "/mutate-ml-example-com-v1-trainingjob"
	ValidatingPath = "/validate-ml-example-com-v1-trainingjob"
)

// ValidatingName is the name of the validating webhook in its configuration.
const ValidatingName = "vtrainingjob.ml.example.com"

// Options of the webhooks.
type Options struct {
	// DefaultImage is the image of workers whose job names none; empty when the operator has none for the framework.
	DefaultImage func(mlv1.Framework) string
	// Children are the objects that the controller makes for a new job: the workers' Job is among them.
	Children func(*mlv1.TrainingJob) []client.Object
	// Check names the field for which the job's framework cannot run, and says why; empty when it can. A new job that fails it is
	// refused. May be nil.
	Check func(*mlv1.TrainingJob) (field, message string)
	// Cluster is what may be looked at.
	Cluster review.Cluster
}

// +kubebuilder:webhookconfiguration:mutating=true,name=spot-training-operator
// +kubebuilder:webhookconfiguration:mutating=false,name=spot-training-operator

// The match conditions spare calls that would change nothing; the handlers check the same again, because OLM's webhook
// definitions have no match conditions.

// +kubebuilder:webhook:path=/mutate-ml-example-com-v1-trainingjob,mutating=true,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,reinvocationPolicy=Never,groups=ml.example.com,resources=trainingjobs,verbs=create;update,versions=v1,name=mtrainingjob.ml.example.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"has-something-to-default","expression":"request.operation == 'CREATE' || (!has(object.metadata.deletionTimestamp) && !has(object.spec.image) && has(oldObject.spec.image)) || (has(object.metadata.annotations) && 'aiplatform.example.com/user' in object.metadata.annotations ? object.metadata.annotations['aiplatform.example.com/user'] : '') != (has(oldObject.metadata.annotations) && 'aiplatform.example.com/user' in oldObject.metadata.annotations ? oldObject.metadata.annotations['aiplatform.example.com/user'] : '')"}]}`
// +kubebuilder:webhook:path=/validate-ml-example-com-v1-trainingjob,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,groups=ml.example.com,resources=trainingjobs,verbs=create;update,versions=v1,name=vtrainingjob.ml.example.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"spec-is-new","expression":"request.operation == 'CREATE' || (!has(object.metadata.deletionTimestamp) && object.spec != oldObject.spec)"}]}`

// What is looked up is read by name or by namespace and never watched. The Job is only tried out.
//
// +kubebuilder:rbac:groups="",resources=resourcequotas;limitranges,verbs=list,namespace=system
// +kubebuilder:rbac:groups="",resources=configmaps;serviceaccounts;persistentvolumeclaims,verbs=get,namespace=system
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=list
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=get,namespace=system
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=create,namespace=system

// Register adds the webhooks to a server.
func Register(server webhook.Server, scheme *runtime.Scheme, o Options) {
	server.Register(DefaultingPath, &admission.Webhook{Handler: &defaulter{defaultImage: o.DefaultImage}})
	o.Cluster.Register(server, ValidatingPath, func(asker review.Asker) admission.Handler {
		return &validator{decoder: admission.NewDecoder(scheme), children: o.Children, check: o.Check, asker: asker}
	})
}

// refusal denies a request as the API server itself does with an invalid object.
func refusal(causes []metav1.StatusCause) admission.Response {
	return review.Refuse(mlv1.GroupVersion.WithKind("TrainingJob").GroupKind(), causes)
}

// among returns the first child of a type, such as the workers' Job; nil when there is none.
func among[T client.Object](children []client.Object) (first T) {
	for _, child := range children {
		if found, ok := child.(T); ok {
			return found
		}
	}
	return first
}
