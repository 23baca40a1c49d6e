// Package spot has the admission webhooks of SpotInstanceJob and SpotInstanceVM. The schema and the CEL rules of the API hold all that needs
// only the object; here is what needs the cluster, or what the provider is known to refuse. What may still come is a warning, because
// objects are often applied in any order; only what can never work is refused.
package spot

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// Names of the webhooks in their configuration, and their paths on the server.
const (
	JobName = "vspotinstancejob.training.dcnlab.com"
	JobPath = "/validate-training-training-dcnlab-com-v1alpha1-spotinstancejob"
	VMName  = "vspotinstancevm.training.dcnlab.com"
	VMPath  = "/validate-training-training-dcnlab-com-v1alpha1-spotinstancevm"
)

// Options of the webhooks.
type Options struct {
	// Replica is the Job of the first replica of a new SpotInstanceJob, as the controller makes it.
	Replica func(*spotv1alpha1.SpotInstanceJob) *batchv1.Job
	// NotAllowed says why a namespace may not have the instances of a SpotInstanceVM; empty when it may.
	NotAllowed func(*corev1.Namespace, *spotv1alpha1.SpotInstanceVM) string
	// TakesCheckpoints says whether the cluster serves CheckpointBackups.
	TakesCheckpoints func(context.Context) (bool, error)
	// Cluster is what may be looked at.
	Cluster review.Cluster
}

// The match conditions spare calls that would change nothing; the handlers check the same again, because OLM's webhook
// definitions have no match conditions.

// +kubebuilder:webhook:path=/validate-training-training-dcnlab-com-v1alpha1-spotinstancejob,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,groups=training.training.dcnlab.com,resources=spotinstancejobs,verbs=create;update,versions=v1alpha1,name=vspotinstancejob.training.dcnlab.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"spec-is-new","expression":"request.operation == 'CREATE' || (!has(object.metadata.deletionTimestamp) && object.spec != oldObject.spec)"}]}`
// +kubebuilder:webhook:path=/validate-training-training-dcnlab-com-v1alpha1-spotinstancevm,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=create;update,versions=v1alpha1,name=vspotinstancevm.training.dcnlab.com,admissionReviewVersions=v1,serviceName=spot-training-operator-webhook,serviceNamespace=spot-training-operator-system,patch=`{"matchConditions":[{"name":"spec-is-new","expression":"request.operation == 'CREATE' || (!has(object.metadata.deletionTimestamp) && object.spec != oldObject.spec)"}]}`

// What is looked up is read by name and never watched. The Job is only tried out.
//
// +kubebuilder:rbac:groups="",resources=configmaps;serviceaccounts;persistentvolumeclaims;secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=get,namespace=system
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=create,namespace=system

// Register adds the webhooks to a server.
func Register(server webhook.Server, scheme *runtime.Scheme, o Options) {
	decoder := admission.NewDecoder(scheme)
	o.Cluster.Register(server, JobPath, func(asker review.Asker) admission.Handler {
		return &validator[*spotv1alpha1.SpotInstanceJob]{decoder, asker, jobChecks{o}}
	})
	o.Cluster.Register(server, VMPath, func(asker review.Asker) admission.Handler {
		return &validator[*spotv1alpha1.SpotInstanceVM]{decoder, asker, vmChecks{o}}
	})
}

// checks are those of the objects of a kind.
type checks[T client.Object] interface {
	// kind is the name of the kind, and empty an object of it.
	kind() string
	empty() T
	// spec of an object.
	spec(T) any
	// mistakes are what can never work.
	mistakes(T) []metav1.StatusCause
	// hints are warnings from the object alone.
	hints(T) []string
	// references are what the object names.
	references(T) []review.Reference
	// ask are more questions about a new object, and what their answers mean.
	ask(review.Asker, authenticationv1.UserInfo, T) ([]review.Question, func() (refused []metav1.StatusCause, warnings []string))
}

// validator warns of what an object needs and the cluster does not have yet, and refuses what can never work.
type validator[T client.Object] struct {
	decoder admission.Decoder
	asker   review.Asker
	checks  checks[T]
}

// Handle implements admission.Handler. Of an update only what is new is told: what was stored once stays changeable.
func (v *validator[T]) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.SubResource != "" {
		return admission.Allowed("")
	}
	object, old, isNew := v.checks.empty(), v.checks.empty(), request.Operation == admissionv1.Create
	if !isNew && v.decoder.DecodeRaw(request.OldObject, old) != nil {
		return admission.Allowed("") // nothing gets worse, and perhaps better
	}
	refuse := func(causes []metav1.StatusCause) admission.Response {
		return review.Refuse(spotv1alpha1.GroupVersion.WithKind(v.checks.kind()).GroupKind(), causes)
	}
	if err := v.decoder.Decode(request, object); err != nil {
		return refuse([]metav1.StatusCause{review.Unreadable(v.checks.kind(), err)})
	}
	object.SetNamespace(request.Namespace)
	old.SetNamespace(request.Namespace)
	if object.GetDeletionTimestamp() != nil || !isNew && equality.Semantic.DeepEqual(v.checks.spec(object), v.checks.spec(old)) {
		return admission.Allowed("")
	}
	mistakes, warnings, references := v.checks.mistakes(object), v.checks.hints(object), v.checks.references(object)
	if !isNew {
		mistakes = without(mistakes, v.checks.mistakes(old))
		warnings = without(warnings, v.checks.hints(old))
		references = without(references, v.checks.references(old))
	}
	if len(mistakes) > 0 {
		return refuse(mistakes)
	}
	questions, missing := v.asker.LookUp(references)
	answers := func() ([]metav1.StatusCause, []string) { return nil, nil }
	if isNew {
		var more []review.Question
		more, answers = v.checks.ask(v.asker, request.UserInfo, object)
		questions = append(questions, more...)
	}
	unchecked := v.asker.Ask(ctx, request.UserInfo, questions)
	refused, told := answers()
	if len(refused) > 0 {
		return refuse(refused)
	}
	for _, m := range missing() {
		warnings = append(warnings, m.String())
	}
	return review.Warn(append(warnings, told...), unchecked)
}

// without are the elements of a list that are not in another one.
func without[T comparable](list, other []T) []T {
	return slices.DeleteFunc(list, func(one T) bool { return slices.Contains(other, one) })
}

// secret is a Secret that an object names in a field.
type secret struct {
	field string
	ref   *spotv1alpha1.SecretReference
	// until says what happens as long as it is missing.
	until string
}

// elsewhere refuses Secrets of other namespaces, which are never read: who may create the object need not be allowed to read them.
func elsewhere(namespace string, secrets []secret) (causes []metav1.StatusCause) {
	for _, s := range secrets {
		if s.ref != nil && s.ref.IsElsewhere(namespace) {
			causes = append(causes, review.Invalid(s.field+".namespace", "is "+s.ref.Namespace+": only Secrets of the object's own namespace are read: "+
				"copy the Secret to namespace "+namespace+" and remove the field"))
		}
	}
	return causes
}

// lookedUp are references to the Secrets.
func lookedUp(namespace string, secrets []secret) (list []review.Reference) {
	for _, s := range secrets {
		if s.ref != nil {
			list = append(list, review.Reference{Field: s.field + ".name", Kind: review.Secret, Namespace: namespace, Name: s.ref.Name, Until: s.until})
		}
	}
	return list
}
