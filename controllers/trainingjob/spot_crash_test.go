package trainingjob

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// These are all writes from a notice until the next attempt exists.
func TestAPIANoticeIsActedUponOnceWhereverTheManagerCrashes(t *testing.T) {
	status := "/trainingjobs/bert/status"
	tests := map[string]crash.Cut{
		"before the notice is written down":   {Method: http.MethodPatch, Path: status},
		"after the notice is written down":    {Method: http.MethodPatch, Path: status, Sent: true},
		"before the decision is written down": {Method: http.MethodPatch, Path: status, Skip: 1},
		"after the decision is written down":  {Method: http.MethodPatch, Path: status, Skip: 1, Sent: true},
		"before the pod is hurried":           {Method: http.MethodDelete, Path: "goes"},
		"after the pod is hurried":            {Method: http.MethodDelete, Path: "goes", Sent: true},
		"before the old Job is deleted":       {Method: http.MethodDelete, Path: "/jobs/bert-training"},
		"after the old Job is deleted":        {Method: http.MethodDelete, Path: "/jobs/bert-training", Sent: true},
		"before the new Job is created":       {Method: http.MethodPost, Path: "/jobs"},
		"after the new Job is created":        {Method: http.MethodPost, Path: "/jobs", Sent: true},
	}
	for name, at := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			agent := c.playAgent(syncingReport())
			m := c.start(nil)
			job := c.submit(builders.TrainingJob("bert").Workers(2).Checkpoints())
			jobs := c.jobsSeen(job)
			first := c.workers(job, 0)
			pods := c.startPods(first)
			stays, goes := c.node(), c.node()
			c.bind(pods[0], stays)
			c.bind(pods[1], goes)
			c.runWithAgent(pods...)
			c.await(job, "Running", func(job *mlv1.TrainingJob) bool {
				return job.Status.State == mlv1.StateRunning && build.HasCheckpoint(&job.Status)
			})
			c.settled(m, job)
			m.stop()
			if at.Path == "goes" {
				at.Path = "/pods/" + pods[1].Name
			}

			m = c.start(&at)
			c.notice(goes)
			eventually(t, "the crash", func() bool {
				c.answerAgent(agent)
				c.collectGarbage()
				return m.Crashed()
			})
			m.stop()
			m = c.start(nil)
			eventually(t, "the new attempt", func() bool {
				c.answerAgent(agent)
				c.collectGarbage()
				var now batchv1.Job
				err := c.Get(t.Context(), client.ObjectKeyFromObject(first), &now)
				return err == nil && now.UID != first.UID
			})
			second := c.workers(job, 1)
			next := c.startPods(second)
			c.bind(next[0], stays)
			c.bind(next[1], stays)
			c.runWithAgent(next...)
			c.await(job, "Running again", state(mlv1.StateRunning))
			c.settled(m, job)

			var now mlv1.TrainingJob
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), &now))
			assert.Equal(t, []types.UID{first.UID, second.UID}, jobs(), "the Job was replaced exactly once")
			assert.Equal(t, []int32{1, 1}, []int32{now.Status.RestartCount, now.Status.DisruptionCount})
			assert.Equal(t, mlv1.PreemptionLeft, now.Status.Preemption.State)
			assert.Equal(t, []string{"preemption-1"}, agent.requests(), "one checkpoint was asked for")
		})
	}
}

// answerAgent has the agent say that the checkpoint that it was asked for is there.
func (c *cluster) answerAgent(agent *agentServer) {
	agent.say(func(r *report.Report) {
		if r.Request != nil && r.Request.State == report.RequestPending {
			r.Request = &report.Request{ID: r.Request.ID, State: report.RequestDone, Path: "/checkpoints/bert/x/checkpoint-step-5"}
		}
	})
}
