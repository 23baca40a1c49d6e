package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// What a cache that is behind shows was started once more, under the number of a start that there had been.
func TestAJobIsStartedOnlyAsItIsNow(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job).WithStatusSubresource(job).Build()
	r := &Reconciler{Direct: api}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	assert.NoError(t, r.confirm(t.Context(), job))

	behind := job.DeepCopy()
	job.Status.StartCount = 1 // written by the manager before this one
	require.NoError(t, api.Status().Update(t.Context(), job))
	assert.True(t, apierrors.IsConflict(r.confirm(t.Context(), behind)), "it is looked at again once the cache shows the newer one")
	assert.NoError(t, r.confirm(t.Context(), job))

	r.pacer.Wrote(client.ObjectKeyFromObject(job), builders.Noon)
	assert.NoError(t, r.confirm(t.Context(), behind), "what this manager has written is not behind")

	r.pacer.Forget(client.ObjectKeyFromObject(job))
	require.NoError(t, api.Delete(t.Context(), job))
	assert.True(t, apierrors.IsConflict(r.confirm(t.Context(), job)), "it was deleted")
}

// A Job says that a container ended with exit code 137, and not why: the pod does.
func TestTheFailureOfAJobIsJudgedByItsPodsThoughTheCacheLacksThem(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(1))
	workers := builders.Workers(job).Condition(batchv1.JobFailed, "PodFailurePolicy", "failed with exit code 137 matching FailJob rule").Obj()
	pod := builders.Pod(workers, 0).Failed(podend.ExitKilled).Obj()
	r := &Reconciler{Direct: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod).Build()}

	behind := see(job, workers)
	require.NoError(t, r.observeUnseenPods(t.Context(), &behind))
	assert.Equal(t, reasons.ProgramKilled, plan(behind).status.LastFailure.Reason)

	require.NoError(t, r.Direct.(client.Client).Delete(t.Context(), pod))
	gone := see(job, workers)
	require.NoError(t, r.observeUnseenPods(t.Context(), &gone))
	assert.Equal(t, reasons.PodDeleted, plan(gone).status.LastFailure.Reason)
}
