package rbac_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// The job service runs with an account of its own, which is held to what the service needs as the manager's is.
func TestTheJobServiceMayDoWhatItNeedsAndNoMore(t *testing.T) {
	installation := installations.Kustomize(t, "base", "job-service")
	installation.Manager = installation.JobService // whose account is held to what it needs
	c := startCluster(t, installation)
	// It reads lists, as it must from an API server that does not stream them (before Kubernetes 1.34).
	env := []string{"KUBE_FEATURE_WatchListClient=false"}
	program := operator.Program(t)
	kubeconfig := c.kubeconfig(installation.Namespace, installation.Account())
	s := jobservice.Start(t, program, env, "--kubernetes", "--kubeconfig="+kubeconfig, "--data-dir="+t.TempDir(),
		"--visibility-timeout=2s", "--aijob-ttl=1s")
	s.Token = c.jobServiceToken()

	job := map[string]any{"job_type": "inference", "image": "registry.example.com/model:1"}
	t.Run("a job is created, followed, reported and deleted", func(t *testing.T) {
		c := c.in(t)
		id := s.Submit(job)
		c.podOf(c.aijob(id))
		status, _ := s.AskText(http.MethodGet, "/jobs/"+id+"/logs", nil)
		assert.NotZero(t, status, "there is no kubelet, whose answer is not what counts here")
		c.endsAs(id, "Succeeded")
		s.AwaitStatus(id, "succeeded")
		c.await("the AIJob to be deleted", func(ctx context.Context) (bool, error) {
			aijob := c.aijobNamed(id)
			err := c.Get(ctx, client.ObjectKeyFromObject(aijob), aijob)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	})
	t.Run("a job is cancelled", func(t *testing.T) {
		c := c.in(t)
		id := s.Submit(job)
		aijob := c.aijob(id)
		s.Must(http.StatusOK, http.MethodDelete, "/jobs/"+id, nil)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(aijob), aijob))
			cancelled, _, _ := unstructured.NestedBool(aijob.Object, "spec", "cancel")
			assert.True(t, cancelled)
		}, patience, 50*time.Millisecond)
	})
	t.Run("queues, clusters and workflows are reported", func(t *testing.T) {
		c := c.in(t)
		cluster := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "aiplatform.example.com/v1alpha1", "kind": "ComputeCluster", "metadata": map[string]any{"name": "gpus"}, "spec": map[string]any{},
		}}
		require.NoError(t, c.Create(t.Context(), cluster))
		s.Must(http.StatusOK, http.MethodGet, "/queues/", nil)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			status, _ := s.Ask(http.MethodGet, "/clusters/gpus", nil)
			assert.Equal(t, http.StatusOK, status)
		}, patience, 50*time.Millisecond)
		s.Must(http.StatusNotFound, http.MethodGet, "/workflows/default/none", nil)
	})
	require.NoError(t, s.Stop(patience))

	requests, denied := requestsOf(t, c.auditLog(), installation.User())
	result := compare(c.grants(), requests, []exception{namesUsers}, installation.Namespace)
	t.Logf("what is granted, and how often it was used:\n%s", result.table)
	assert.Empty(t, denied, "refused: grant it in config/job-service/workload/role.yaml")
	for _, finding := range result.findings {
		assert.Fail(t, finding)
	}
}

// jobServiceToken is that of a user who may do with jobs of every namespace whatever can be done.
func (c *cluster) jobServiceToken() string {
	c.t.Helper()
	ctx := c.t.Context()
	user := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "submitter"}}
	require.NoError(c.t, c.Create(ctx, user))
	require.NoError(c.t, c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "submitter"}, RoleRef: clusterRole("cluster-admin"),
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: user.Name, Namespace: user.Namespace}},
	}))
	return apiserver.AccountToken(c.t, c.Client, user.Namespace, user.Name, "job-service")
}

func (c *cluster) aijobNamed(id string) *unstructured.Unstructured {
	aijob := &unstructured.Unstructured{}
	aijob.SetAPIVersion("aiplatform.example.com/v1alpha1")
	aijob.SetKind("AIJob")
	aijob.SetNamespace("default")
	aijob.SetName("job-" + id)
	return aijob
}

// aijob waits for the AIJob of a job.
func (c *cluster) aijob(id string) *unstructured.Unstructured {
	c.t.Helper()
	aijob := c.aijobNamed(id)
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(aijob), aijob))
	}, patience, 50*time.Millisecond)
	return aijob
}

// podOf an AIJob, as its controller and a node would have it.
func (c *cluster) podOf(aijob *unstructured.Unstructured) {
	c.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: aijob.GetNamespace(), Name: aijob.GetName() + "-0-0", Labels: map[string]string{"aiplatform.example.com/job": aijob.GetName()},
		},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "job", Image: "registry.example.com/model:1"}}},
	}
	require.NoError(c.t, c.Create(c.t.Context(), pod))
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "job", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), pod, client.MergeFrom(before)))
}

// endsAs writes the status of an AIJob as its controller would.
func (c *cluster) endsAs(id, phase string) {
	c.t.Helper()
	aijob := c.aijob(id)
	before := aijob.DeepCopy()
	aijob.Object["status"] = map[string]any{"phase": phase, "completionTime": time.Now().UTC().Format(time.RFC3339)}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), aijob, client.MergeFrom(before)))
}
