package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// What a cache that is behind shows was started once more, under the number of a start that there had been.
func TestAJobIsStartedOnlyAsItIsNow(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job).WithStatusSubresource(job).Build()
	r := &Reconciler{Direct: api, Clock: clocktesting.NewFakePassiveClock(builders.Noon)}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	assert.NoError(t, r.confirm(t.Context(), job))

	behind := job.DeepCopy()
	job.Status.StartCount = 1 // written by the manager before this one
	require.NoError(t, api.Status().Update(t.Context(), job))
	assert.True(t, apierrors.IsConflict(r.confirm(t.Context(), behind)), "it is looked at again once the cache shows the newer one")
	assert.NoError(t, r.confirm(t.Context(), job))

	require.NoError(t, api.Delete(t.Context(), job))
	assert.True(t, apierrors.IsConflict(r.confirm(t.Context(), job)), "it was deleted")
}

// A pod that the Job controller makes while its Job is being deleted may be there before the cache shows it.
func TestAJobIsStartedOnlyWhenNoPodOfAnEarlierStartRuns(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	job.Status.StartCount = 1
	workers := builders.Workers(job).Obj()
	served := builders.Pod(workers, 0).Running().Obj()
	delete(served.Annotations, mlv1.AnnotationAttempt)
	served.Name = "tensorboard"
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		starts bool
	}{
		"one runs":        {builders.Pod(workers, 0).Running().Obj(), false},
		"one is ending":   {builders.Pod(workers, 0).Running().Deleting(time.Minute).Obj(), false},
		"one is overdue":  {builders.Pod(workers, 0).Running().Deleting(-podend.Overdue).Obj(), true},
		"one has ended":   {builders.Pod(workers, 0).Failed(1).Obj(), true},
		"it is no worker": {served, true},
		"of another job":  {builders.Pod(builders.Workers(builders.TrainingJob("gpt").Obj()).Obj(), 0).Running().Obj(), true},
	} {
		t.Run(name, func(t *testing.T) {
			test.pod.Finalizers = []string{batchv1.JobTrackingFinalizer}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job, test.pod).Build()
			r := &Reconciler{Direct: api, Clock: clocktesting.NewFakePassiveClock(builders.Noon)}
			is := &mlv1.TrainingJob{}
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(job), is))
			err := r.confirm(t.Context(), is)
			if test.starts {
				assert.NoError(t, err)
			} else {
				assert.True(t, apierrors.IsConflict(err))
			}
		})
	}
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
