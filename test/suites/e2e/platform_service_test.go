//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// submitPods submits a job that runs in pods of an image, which is tried once.
func (p *pooledJobs) submitPods(image string, resources map[string]any) (id string) {
	p.t.Helper()
	status, answer := p.ask(p.t.Context(), http.MethodPost, "/jobs/", map[string]any{
		"job_type": "training", "image": image, "namespace": p.namespace, "resources": resources,
		"config": map[string]any{"epochs": 1}, "retry_policy": map[string]any{"max_retries": 0},
	})
	require.Equal(p.t, http.StatusCreated, status, "%v", answer)
	return answer["id"].(string)
}

// logs of a job, as they stand.
func (p *pooledJobs) logs(id string) string {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+"/api/v1/jobs/"+id+"/logs?timestamps=false", http.NoBody)
	require.NoError(p.t, err)
	request.Header.Set("Authorization", "Bearer "+p.token)
	response, err := p.client.Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, response.StatusCode, "%s", text)
	return string(text)
}

func (p *pooledJobs) aijob(id string) *aiplatformv1alpha1.AIJob {
	p.t.Helper()
	aijob := &aiplatformv1alpha1.AIJob{}
	eventually(p.t, "the AIJob of "+id+" is there", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: "job-" + id}, aijob)
		return err == nil, client.IgnoreNotFound(err)
	})
	return aijob
}

// A job that names an image goes from a request over an AIJob to a pod on the node, and what the pod did comes back: its log, its end,
// and another try when one asks for it. The workers' image has no model to train here, and says so.
func TestAServiceJobRunsInAPod(t *testing.T) {
	t.Parallel()
	p := newPooledJobs(t)
	id := p.submitPods(workerImage(t), map[string]any{"cpu": "50m", "memory": "256Mi"})
	aijob := p.aijob(id)
	assert.Equal(t, "system:serviceaccount:"+p.namespace+":submitter", aijob.Annotations[aiplatformv1alpha1.AnnotationUser],
		"the submitter's limits count, not the service's")
	job := p.ends(id, "dead_letter")
	assert.NotEmpty(t, job["error"])
	assert.Contains(t, p.logs(id), "MODEL is not set")

	before := p.aijob(id).Status.CompletionTime
	require.NotNil(t, before)
	status, answer := p.ask(t.Context(), http.MethodPost, "/jobs/"+id+"/requeue", nil)
	require.Equal(t, http.StatusOK, status, "%v", answer)
	eventually(t, "it was tried again", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(aijob), aijob)
		end := aijob.Status.CompletionTime
		return err == nil && aijob.Status.Phase == aiplatformv1alpha1.AIJobDeadLetter && end != nil && end.After(before.Time), err
	})
	p.ends(id, "dead_letter")
}

// A job that waits for room that there is not is cancelled with its AIJob.
func TestAServiceJobIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPooledJobs(t)
	id := p.submitPods(workerImage(t), map[string]any{"gpu": 64})
	aijob := p.aijob(id)
	status, answer := p.ask(t.Context(), http.MethodDelete, "/jobs/"+id, nil)
	require.Equal(t, http.StatusOK, status, "%v", answer)
	p.ends(id, "cancelled")
	awaitAIJob(t, aijob, aiplatformv1alpha1.AIJobCancelled)
}
