package runner

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// mayStart asks again whether the user of a job may create AIJobs in its namespace: the right may have been taken away while the job waited. A
// job whose AIJob exists has started before. Errors: *auth.Forbidden, for as long as the right is missing.
func (d *Dispatcher) mayStart(ctx context.Context, job *jobs.Job) error {
	if d.settings.Access == nil || job.SubmitterGroups == nil {
		return nil
	}
	user := auth.User{Username: job.Submitter, Groups: job.SubmitterGroups}
	err := d.settings.Access.CheckUser(ctx, user, auth.Attributes{Verb: "create", Resource: auth.Jobs, Namespace: job.Namespace})
	var forbidden *auth.Forbidden
	if !errors.As(err, &forbidden) {
		return err
	}
	err = d.cluster.direct.Get(ctx, nameOf(job), &aiplatformv1alpha1.AIJob{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the job was not started: %w", forbidden)
	}
	if err != nil {
		return fmt.Errorf("read the AIJob: %w", err)
	}
	return nil
}
