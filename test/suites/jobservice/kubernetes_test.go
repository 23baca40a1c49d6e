package jobservice_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
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

// statusOf an answer to GET with a token, from a server whose certificate is not checked.
func statusOf(t *testing.T, url, token string) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode
}

func TestKubernetesSaysWhoMayDoWhat(t *testing.T) {
	c := startCluster(t)
	metrics := process.FreePort(t, process.AnyPort)
	s := jobservice.Start(t, c.program, []string{"JOB_SERVICE_HMAC_SECRET=" + secret},
		"--kubernetes", "--kubeconfig="+c.kubeconfig, "--data-dir="+t.TempDir(), "--metrics-secure", "--metrics-bind-address="+metrics)
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
	t.Run("metrics", func(t *testing.T) {
		c := c.in(t)
		require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
		}))
		require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics-reader"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "prometheus", Namespace: "default"}},
		}))
		prometheus, stranger := c.account("prometheus", "", false), c.account("stranger", "", false)
		assert.Equal(t, http.StatusOK, statusOf(t, "https://"+metrics+"/metrics", prometheus))
		assert.Equal(t, http.StatusForbidden, statusOf(t, "https://"+metrics+"/metrics", stranger))
		assert.Equal(t, http.StatusUnauthorized, statusOf(t, "https://"+metrics+"/metrics", ""))
		assert.Equal(t, http.StatusBadRequest, statusOf(t, "http://"+metrics+"/metrics", ""), "it is not served by plain HTTP")
		assert.Equal(t, http.StatusOK, statusOf(t, "https://"+metrics+"/api/v1/health/ready", ""), "the kubelet has no token")
	})
	t.Run("clusters and queues", func(t *testing.T) {
		s.Token = c.in(t).account("submitter", "job-service", true)
		status, _ := s.Ask(http.MethodGet, "/clusters/", nil)
		assert.Equal(t, http.StatusForbidden, status, "its Role does not have them")
	})
}
