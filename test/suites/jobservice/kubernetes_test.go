package jobservice_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
)

// inAPod is a job that runs as an AIJob.
func inAPod() map[string]any {
	return map[string]any{
		"job_type": "inference", "image": "registry.example.com/model:1", "priority": 80, "config": map[string]any{"text": "hello"},
		"resources": map[string]any{"cpu": "500m", "memory": "1Gi"},
	}
}

func TestJobsWithAnImageRunAsAIJobs(t *testing.T) {
	c := startCluster(t)
	t.Run("from the request to the result", func(t *testing.T) {
		c := c.in(t)
		s := c.service()
		id := s.Submit(inAPod())
		aijob := c.aijob(id)
		assert.EqualValues(t, 80, *aijob.Spec.Priority)
		assert.Equal(t, "jwt:trial", aijob.Annotations[aiplatformv1alpha1.AnnotationUser])
		assert.JSONEq(t, `{"text":"hello"}`, string(aijob.Spec.Config.Raw))
		c.reaches(id, aiplatformv1alpha1.AIJobRunning, nil)
		s.AwaitStatus(id, "running")
		c.reaches(id, aiplatformv1alpha1.AIJobSucceeded, map[string]string{"label": "positive"})
		job := s.AwaitStatus(id, "succeeded")
		assert.Equal(t, map[string]any{"label": "positive"}, job["result"])
	})
	t.Run("a cancelled job takes its AIJob with it", func(t *testing.T) {
		c := c.in(t)
		s := c.service()
		id := s.Submit(inAPod())
		c.aijob(id)
		s.Must(http.StatusOK, http.MethodDelete, "/jobs/"+id, nil)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			assert.True(t, ptr.Deref(c.aijob(id).Spec.Cancel, false))
		}, patience, 50*time.Millisecond)
	})
	t.Run("a cancelled AIJob takes its job with it", func(t *testing.T) {
		c := c.in(t)
		s := c.service()
		id := s.Submit(inAPod())
		c.reaches(id, aiplatformv1alpha1.AIJobCancelled, nil)
		s.AwaitStatus(id, "cancelled")
	})
	t.Run("a crash of the service loses nothing", func(t *testing.T) {
		c := c.in(t)
		s := c.service()
		during, running := s.Submit(inAPod()), s.Submit(inAPod())
		uid := c.aijob(running).UID
		c.aijob(during)
		s.Kill()
		c.reaches(during, aiplatformv1alpha1.AIJobSucceeded, map[string]string{"label": "negative"})
		s.Restart()
		assert.Equal(t, map[string]any{"label": "negative"}, s.AwaitStatus(during, "succeeded")["result"])
		c.reaches(running, aiplatformv1alpha1.AIJobRunning, nil)
		s.AwaitStatus(running, "running")
		c.reaches(running, aiplatformv1alpha1.AIJobSucceeded, nil)
		s.AwaitStatus(running, "succeeded")
		assert.Equal(t, uid, c.aijob(running).UID)
	})
	t.Run("a job that is cancelled while no service runs the AIJob", func(t *testing.T) {
		c := c.in(t)
		s := c.service("--aijob-ttl=1s")
		id := s.Submit(inAPod())
		c.aijob(id)
		s.Must(http.StatusOK, http.MethodDelete, "/jobs/"+id, nil)
		c.reaches(id, aiplatformv1alpha1.AIJobCancelled, nil)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			err := c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: "job-" + id}, &aiplatformv1alpha1.AIJob{})
			assert.True(t, client.IgnoreNotFound(err) == nil && err != nil, "the AIJob is deleted some time after its end")
		}, patience, 100*time.Millisecond)
	})
}

func TestKubernetesSaysWhoMayDoWhat(t *testing.T) {
	c := startCluster(t)
	s := jobservice.Start(t, c.program, []string{"JOB_SERVICE_HMAC_SECRET=" + secret},
		"--kubernetes", "--kubeconfig="+c.kubeconfig, "--data-dir="+t.TempDir())
	t.Run("a ServiceAccount with a Role", func(t *testing.T) {
		s.Token = c.in(t).account("submitter", "job-service", true)
		id := s.Submit(inAPod())
		assert.Equal(t, "system:serviceaccount:default:submitter", c.in(t).aijob(id).Annotations[aiplatformv1alpha1.AnnotationUser])
	})
	t.Run("one without", func(t *testing.T) {
		s.Token = c.in(t).account("stranger", "job-service", false)
		status, answer := s.Ask(http.MethodPost, "/jobs/", inAPod())
		assert.Equal(t, http.StatusForbidden, status, "%v", answer)
	})
	t.Run("a token for the API server", func(t *testing.T) {
		s.Token = c.in(t).account("submitter", "", true)
		status, answer := s.Ask(http.MethodPost, "/jobs/", inAPod())
		assert.Equal(t, http.StatusUnauthorized, status, "%v", answer)
	})
	t.Run("a token of ours is held to RBAC too", func(t *testing.T) {
		s.Token = token(t, c.program, "--subject=unknown")
		status, answer := s.Ask(http.MethodPost, "/jobs/", inAPod())
		assert.Equal(t, http.StatusForbidden, status, "%v", answer)
	})
	t.Run("clusters and queues", func(t *testing.T) {
		s.Token = c.in(t).account("submitter", "job-service", true)
		status, _ := s.Ask(http.MethodGet, "/clusters/", nil)
		assert.Equal(t, http.StatusForbidden, status, "its Role does not have them")
	})
}
