package runner

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// members of a group may create AIJobs; any other user may no more.
type members string

func (m members) Allowed(_ context.Context, user auth.User, what auth.Attributes) (bool, string, error) {
	isCreation := what.Verb == "create" && what.Resource == "aijobs" && what.Group == aiplatformv1alpha1.GroupName && what.Namespace != ""
	return isCreation && slices.Contains(user.Groups, string(m)), "", nil
}

// What a user submitted does not start any more once the user has lost the right.
func TestARightIsAskedForAgainWhenTheJobStarts(t *testing.T) {
	w := newWorld(t)
	of := func(groups ...string) func(*jobs.Job) {
		return func(job *jobs.Job) { job.SubmitterGroups = groups }
	}
	_, end := w.replica()
	started := w.submit(of("left"))
	w.aijob(started)
	end()

	w.replica(func(s *Settings) { s.Access = auth.NewAccess(members("team"), time.Now) })
	refused := w.submit(of("left"))
	job := w.awaitStatus(refused, jobs.Failed)
	assert.Equal(t, `the job was not started: user "alice" may not create aijobs.aiplatform.example.com in namespace "`+w.namespace+
		`": ask for a Role that allows it`, job.Error)
	err := w.cluster.direct.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + refused}, &aiplatformv1alpha1.AIJob{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	w.aijob(w.submit(of("team", "left")))
	w.aijob(w.submit()) // by a version that did not keep the groups
	w.reaches(started, aiplatformv1alpha1.AIJobSucceeded)
	w.awaitStatus(started, jobs.Succeeded)
}
