package trainingjob

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// validator warns of what a job needs and the cluster does not have yet, and refuses what can never run.
type validator struct {
	decoder  admission.Decoder
	children func(*mlv1.TrainingJob) []client.Object
	check    func(*mlv1.TrainingJob) (field, message string)
	// cluster is asked about the job; nil: the answer is from the object alone. May is as in Options.
	cluster  client.Client
	may      func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) (bool, error)
	patience time.Duration
}

// Handle implements admission.Handler.
func (v *validator) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.SubResource != "" {
		return admission.Allowed("")
	}
	var job, old mlv1.TrainingJob
	if request.Operation == admissionv1.Update {
		if err := v.decoder.DecodeRaw(request.OldObject, &old); err != nil {
			return admission.Allowed("") // nothing gets worse, and perhaps better
		}
	}
	if err := v.decoder.Decode(request, &job); err != nil {
		return unreadable(request, err)
	}
	job.Namespace = request.Namespace
	switch {
	case job.DeletionTimestamp != nil:
		return admission.Allowed("")
	case request.Operation == admissionv1.Update && !asksForMore(&old, &job):
		return admission.Allowed("")
	}
	if request.Operation == admissionv1.Create && v.check != nil {
		if field, message := v.check(&job); field != "" {
			return refusal([]metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}})
		}
	}
	children := v.children(&job)
	if v.cluster == nil {
		return admission.Allowed("").WithWarnings(warnings(&job, children, findings{})...)
	}
	ctx, cancel := context.WithTimeout(ctx, v.patience)
	defer cancel()
	// Only a new job is tried out: one that is suspended because it is wrong must stay changeable.
	found := v.ask(ctx, request.UserInfo, &job, children, request.Operation == admissionv1.Create)
	if len(found.refused) > 0 {
		return refusal(inTermsOf(&job, among[*batchv1.Job](children), found.refused))
	}
	return admission.Allowed("").WithWarnings(warnings(&job, children, found)...)
}

// unreadable refuses an object whose typed form cannot be had: once stored, it would keep every client from listing
// the jobs of the whole cluster.
func unreadable(request admission.Request, err error) admission.Response {
	causes := unreadableQuantities(specOf(request.Object.Raw))
	if len(causes) == 0 {
		causes = []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec",
			Message: fmt.Sprintf("cannot be read as a TrainingJob: %v: correct the value", err),
		}}
	}
	return refusal(causes)
}

// asksForMore says whether an update can need what the cluster does not have: more workers, or workers at all.
func asksForMore(old, job *mlv1.TrainingJob) bool {
	suspended := func(j *mlv1.TrainingJob) bool { return ptr.Deref(j.Spec.Suspend, false) }
	return !suspended(job) && (suspended(old) || job.Spec.NumWorkers > old.Spec.NumWorkers)
}
