package runner

import (
	"context"
	"slices"
	"sync/atomic"
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
type members struct {
	group atomic.Value
	asked atomic.Int64
}

func (m *members) Allowed(_ context.Context, user auth.User, what auth.Attributes) (bool, string, error) {
	m.asked.Add(1)
	isCreation := what.Verb == "create" && what.Resource == "aijobs" && what.Group == aiplatformv1alpha1.GroupName && what.Namespace != ""
	return isCreation && slices.Contains(user.Groups, m.group.Load().(string)), "", nil
}

// access that asks them each time.
func (m *members) access(s *Settings) {
	var hours atomic.Int64
	s.Access = auth.NewAccess(m, func() time.Time { return time.Unix(hours.Add(3600), 0) })
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

	m := &members{}
	m.group.Store("team")
	d, _ := w.replica(m.access)
	kept := w.submit(of("left"))
	w.eventually("it is asked for several times", func(c *assert.CollectT) { assert.Greater(c, m.asked.Load(), int64(3)) })
	job, err := w.store.Get(t.Context(), kept)
	require.NoError(t, err)
	assert.False(t, job.Status.Ended(), "who makes a RoleBinding again takes the right away for a moment")
	err = w.cluster.direct.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + kept}, &aiplatformv1alpha1.AIJob{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	leased, _ := d.task(kept)
	d.change(kept, leased.fence, func(t *task) { t.since = time.Now().Add(-2 * forbiddenFor) })
	job = w.awaitStatus(kept, jobs.DeadLetter)
	assert.Equal(t, `the job was not started: user "alice" may not create aijobs.aiplatform.example.com in namespace "`+w.namespace+
		`": ask for a Role that allows it`, job.Error)

	w.aijob(w.submit(of("team", "left")))
	w.aijob(w.submit()) // by a version that did not keep the groups
	w.reaches(started, aiplatformv1alpha1.AIJobSucceeded)
	w.awaitStatus(started, jobs.Succeeded)

	returned := w.submit(of("left"))
	asked := m.asked.Load()
	w.eventually("it is asked for", func(c *assert.CollectT) { assert.Greater(c, m.asked.Load(), asked) })
	m.group.Store("left")
	w.aijob(returned)
}
