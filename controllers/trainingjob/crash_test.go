package trainingjob

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// jobsSeen remembers the Jobs that existed under a name.
func (c *cluster) jobsSeen(job *mlv1.TrainingJob) func() []types.UID {
	c.t.Helper()
	watcher, err := client.NewWithWatch(api.Config(c.t), client.Options{Scheme: scheme})
	require.NoError(c.t, err)
	watch, err := watcher.Watch(c.t.Context(), &batchv1.JobList{}, client.InNamespace(c.namespace))
	require.NoError(c.t, err)
	c.t.Cleanup(watch.Stop)
	return func() []types.UID {
		// A Job of the test's own is the last of the watch: all before it has been seen then.
		last := &batchv1.Job{}
		last.GenerateName, last.Namespace = "last-", c.namespace
		last.Spec.Template = build.Workers(job, build.Settings{WorkerImage: "worker:1", AgentImage: "agent:1"}, 0).Spec.Template
		require.NoError(c.t, c.Create(c.t.Context(), last))
		var seen []types.UID
		for event := range watch.ResultChan() {
			object := event.Object.(*batchv1.Job)
			if object.UID == last.UID {
				break
			}
			if len(seen) == 0 || seen[len(seen)-1] != object.UID {
				seen = append(seen, object.UID)
			}
		}
		require.NoError(c.t, c.Delete(c.t.Context(), last, client.PropagationPolicy("Background")))
		return seen
	}
}

func TestAPIAFailedWorkerRestartsTheWholeJobOnce(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	jobs := c.jobsSeen(job)
	first := c.workers(job, 0)
	pods := c.startPods(first)
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	c.end(1, "CUDA error", pods[1])
	c.end(75, "", pods[0])
	restarting := c.await(job, "Restarting", state(mlv1.StateRestarting))
	assert.Equal(t, int32(1), restarting.Status.RestartCount)
	assert.Equal(t, "worker 1 (pod "+pods[1].Name+") ended with exit code 1: CUDA error", restarting.Status.FailureReason)
	c.gone(first.DeepCopy())
	second := c.workers(job, 1)
	c.run(c.startPods(second)...)
	running := c.await(job, "Running again", state(mlv1.StateRunning))
	c.settled(m, job)

	assert.Equal(t, []types.UID{first.UID, second.UID}, jobs(), "the Job was replaced exactly once")
	assert.Equal(t, "1", second.Spec.Template.Annotations[mlv1.AnnotationAttempt])
	assert.Equal(t, int32(1), running.Status.RestartCount)
	assert.Zero(t, running.Status.DisruptionCount)
	assert.Equal(t, &mlv1.WorkersStatus{Total: 2, Active: 2}, running.Status.Workers)
	assert.Equal(t, "False WorkersRunning", outlineOf(desired{status: running.Status}).Conditions["Restarting"])
}

func TestAPIARestartSurvivesACrashOfTheManager(t *testing.T) {
	status, workers := "/trainingjobs/bert/status", "/jobs"
	tests := map[string]crash.Cut{
		"before the intent is written": {Method: http.MethodPatch, Path: status, Skip: 2},
		"after the intent is written":  {Method: http.MethodPatch, Path: status, Skip: 2, Sent: true},
		"before the old Job is deleted": {
			Method: http.MethodDelete, Path: "/jobs/bert-training",
		},
		"after the old Job is deleted": {
			Method: http.MethodDelete, Path: "/jobs/bert-training", Sent: true,
		},
		"before the new Job is created": {Method: http.MethodPost, Path: workers, Skip: 1},
		"after the new Job is created":  {Method: http.MethodPost, Path: workers, Skip: 1, Sent: true},
	}
	for name, at := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := c.start(&at)
			job := c.submit(builders.TrainingJob("bert").Workers(2))
			jobs := c.jobsSeen(job)
			first := c.workers(job, 0)
			c.await(job, "Initializing", state(mlv1.StateInitializing))
			pods := c.startPods(first)
			c.run(pods...)
			c.await(job, "Running", state(mlv1.StateRunning))

			c.end(1, "", pods[1])
			eventually(t, "the crash", func() bool {
				c.collectGarbage()
				return m.Crashed()
			})
			m.stop()
			m = c.start(nil)
			eventually(t, "the new attempt", func() bool {
				c.collectGarbage()
				var now batchv1.Job
				err := c.Get(t.Context(), client.ObjectKeyFromObject(first), &now)
				return err == nil && now.UID != first.UID
			})
			second := c.workers(job, 1)
			c.run(c.startPods(second)...)
			running := c.await(job, "Running again", state(mlv1.StateRunning))
			c.settled(m, job)

			assert.Equal(t, []types.UID{first.UID, second.UID}, jobs(), "the Job was replaced exactly once")
			assert.Equal(t, int32(1), running.Status.RestartCount)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), running))
			assert.Equal(t, int32(1), running.Status.RestartCount, "after everything has settled")
		})
	}
}

func TestAPIARestartIsNotDecidedFromAnOldStatus(t *testing.T) {
	c := newCluster(t)
	stale := c.submit(builders.TrainingJob("bert"))
	now := stale.DeepCopy()
	now.Status.RestartCount = 1
	require.NoError(t, c.Status().Patch(t.Context(), now, client.MergeFrom(stale)))

	again := stale.Status.DeepCopy()
	again.RestartCount, again.State = 1, mlv1.StateRestarting
	reconciler := Reconciler{
		Client: c.Client, Recorder: events.NewFakeRecorder(10), Metrics: metrics.NewTrainingJobs(prometheus.NewRegistry(), 1),
	}
	err := reconciler.report(t.Context(), see(stale, nil), &desired{status: *again})

	assert.True(t, apierrors.IsConflict(err), "the write is refused: %v", err)
}

func TestAPIAStartSurvivesACrashOfTheManagerAtAnyWrite(t *testing.T) {
	for _, path := range []string{"/serviceaccounts", "/persistentvolumeclaims", "/jobs", "/configmaps", "/services"} {
		for _, sent := range []bool{false, true} {
			name := "before " + path
			if sent {
				name = "after " + path
			}
			t.Run(name, func(t *testing.T) {
				c := newCluster(t)
				m := c.start(&crash.Cut{Method: http.MethodPost, Path: path, Sent: sent})
				job := c.submit(builders.TrainingJob("bert").Workers(2).Checkpoints())
				eventually(t, "the crash", m.Crashed)
				m.stop()

				m = c.start(nil)
				c.await(job, "Initializing", state(mlv1.StateInitializing))
				c.settled(m, job)

				assert.Len(t, c.versions(job), 7, "the TrainingJob and its six children, each once")
			})
		}
	}
}
