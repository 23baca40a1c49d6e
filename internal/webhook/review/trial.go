package review

import (
	"context"
	"errors"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Trial is what the API server says of a Job that is tried out.
type Trial struct {
	// Refused is why the Job could never be created.
	Refused []metav1.StatusCause
	// Said are its warnings.
	Said []string
	// Forbidden is why the Job cannot be created at present, as by a quota with its figures; nil when nothing forbids it.
	Forbidden error
}

// Try is a question that has the API server check a Job as if it were created now, and the answer. That the name is taken, or that
// another webhook takes no trials, says nothing about the Job. Why it is forbidden is told to a user who would be told the same when creating a Job.
func (a Asker) Try(about string, user authenticationv1.UserInfo, job *batchv1.Job) (Question, *Trial) {
	trial := &Trial{}
	return Question{About: about, Ask: func(ctx context.Context) error {
		err := a.Client.Create(listen(ctx, &trial.Said), job.DeepCopy(), client.DryRunAll)
		var status *apierrors.StatusError
		switch {
		case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsBadRequest(err):
			return nil
		case apierrors.IsInvalid(err) && errors.As(err, &status):
			if details := status.ErrStatus.Details; details != nil {
				trial.Refused = slices.Clone(details.Causes)
			}
			if len(trial.Refused) == 0 {
				trial.Refused = []metav1.StatusCause{Invalid("spec", err.Error())}
			}
			return nil
		case apierrors.IsForbidden(err):
			may, reviewErr := a.May(ctx, user, *ToSee("create", job.Namespace, "", batchv1.SchemeGroupVersion.WithKind("Job")))
			if reviewErr == nil && may {
				trial.Forbidden = err
			}
			return reviewErr
		}
		return err
	}}, trial
}
