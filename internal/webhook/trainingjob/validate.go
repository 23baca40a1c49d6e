package trainingjob

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// validator warns of what a job needs and the cluster does not have yet, and refuses what can never run.
type validator struct {
	decoder  admission.Decoder
	children func(*mlv1.TrainingJob) []client.Object
	check    func(*mlv1.TrainingJob) (field, message string)
	// asker is asked about the job.
	asker review.Asker
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
	case request.Operation == admissionv1.Update && !asksForMore(&old, &job) && !isEdited(&old, &job):
		return admission.Allowed("")
	}
	if v.check != nil && (request.Operation == admissionv1.Create || isEdited(&old, &job)) {
		if field, message := v.check(&job); field != "" {
			return refusal([]metav1.StatusCause{review.Invalid(field, message)})
		}
	}
	children := v.children(&job)
	// Only a new job is tried out: one that is suspended because it is wrong must stay changeable.
	found := v.ask(ctx, request.UserInfo, &job, children, request.Operation == admissionv1.Create)
	if refused := found.trial.Refused; len(refused) > 0 {
		return refusal(inTermsOf(&job, among[*batchv1.Job](children), refused))
	}
	return review.Warn(warnings(&job, children, found), found.unchecked)
}

// unreadable refuses an object whose typed form cannot be had.
func unreadable(request admission.Request, err error) admission.Response {
	causes := unreadableQuantities(specOf(request.Object.Raw))
	if len(causes) == 0 {
		causes = []metav1.StatusCause{review.Unreadable("TrainingJob", err)}
	}
	return refusal(causes)
}

// isEdited says whether an update changes more than what can be changed at any time. The schema has seen to it that the job does not run.
func isEdited(old, job *mlv1.TrainingJob) bool {
	was, is := old.Spec.DeepCopy(), job.Spec.DeepCopy()
	for _, spec := range []*mlv1.TrainingJobSpec{was, is} {
		spec.Suspend, spec.TTLSecondsAfterFinished, spec.CleanupPolicy, spec.NumWorkers = nil, nil, "", 0
	}
	return !equality.Semantic.DeepEqual(was, is)
}

// asksForMore says whether an update can need what the cluster does not have: more workers, or workers at all.
func asksForMore(old, job *mlv1.TrainingJob) bool {
	suspended := func(j *mlv1.TrainingJob) bool { return ptr.Deref(j.Spec.Suspend, false) }
	return !suspended(job) && (suspended(old) || job.Spec.NumWorkers > old.Spec.NumWorkers)
}
