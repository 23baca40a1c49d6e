package rest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// cluster with fixed objects, for how they are answered. What a real one has is the matter of its own package.
type cluster struct {
	err     error
	options rest.LogOptions
}

func (c *cluster) Logs(_ context.Context, job jobs.Job, options rest.LogOptions) (rest.Lines, error) {
	c.options = options
	return rest.LinesOf("first line of " + job.ID + "\nprogress 1\rprogress 2\n\nlast"), c.err
}

func (c *cluster) Clusters(context.Context) ([]rest.Cluster, error) {
	return []rest.Cluster{{Name: "gpu", Status: "healthy", TotalNodes: 2, AvailableGPUs: 3, TotalGPUs: 8, RunningJobs: 1}}, c.err
}

func (c *cluster) Cluster(ctx context.Context, name string) (rest.Cluster, error) {
	all, err := c.Clusters(ctx)
	if name != "gpu" {
		return rest.Cluster{}, fmt.Errorf("ComputeCluster %s: %w", name, jobs.ErrNotFound)
	}
	most := 64
	all[0].Capacity = &rest.ClusterCapacity{MaxGPUs: &most}
	all[0].Nodes = []rest.Node{{Name: "node-1", Ready: true, GPUs: rest.Count{Total: 8, Available: 3},
		CPU: rest.Amount{Total: "32", Available: "7500m"}, Memory: rest.Amount{Total: "128Gi", Available: "64Gi"}}}
	return all[0], err
}

func (c *cluster) QueueLimits(context.Context) (map[string]int, error) {
	return map[string]int{"inference": 100, "idle": 5}, c.err
}

func (c *cluster) Workflow(_ context.Context, namespace, name string) (*aiplatformv1alpha1.AgentWorkflow, error) {
	if name != "w" {
		return nil, jobs.ErrNotFound
	}
	start := metav1.Now()
	w := &aiplatformv1alpha1.AgentWorkflow{}
	w.Namespace, w.Name = namespace, name
	w.Spec.Stages = []aiplatformv1alpha1.Stage{
		{Name: "train", Agent: "trainer"}, {Name: "evaluate", Agent: "judge", DependsOn: []aiplatformv1alpha1.StageName{"train"}},
		{Name: "deploy", Agent: "deployer", DependsOn: []aiplatformv1alpha1.StageName{"train", "evaluate"}, Condition: "double(stages.evaluate.outputs.accuracy) > 0.9"},
	}
	w.Status = aiplatformv1alpha1.AgentWorkflowStatus{
		Phase: aiplatformv1alpha1.WorkflowRunning, CurrentStage: "evaluate", StartTime: &start,
		Results: map[string]string{"train.model": "s3://bucket/model"},
		Stages: []aiplatformv1alpha1.StageStatus{
			{Name: "train", Phase: aiplatformv1alpha1.StageSucceeded, JobName: "w-train", StartTime: &start, CompletionTime: &start},
			{Name: "evaluate", Phase: aiplatformv1alpha1.StageRunning, JobName: "w-evaluate", StartTime: &start},
		},
	}
	return w, c.err
}

func (c *cluster) Check(context.Context) error { return c.err }

func TestKubernetes(t *testing.T) {
	k, store := &cluster{}, newMemory()
	s := newService(t, store, func(o *rest.Options) { o.Kubernetes = k })
	pod := s.submit(t, all, `{"job_type":"inference","image":"registry.example.com/m:v1"}`)
	pooled := s.submit(t, all, `{"job_type":"inference"}`)
	assert.Equal(t, []string{"system:authenticated"}, store.jobs[pod].SubmitterGroups, "for when the job starts")
	assert.Empty(t, store.jobs[pooled].SubmitterGroups)
	for _, test := range []struct {
		path   string
		status int
		has    []string
	}{
		{"/clusters/", 200, []string{`"name":"gpu"`, `"available_gpus":3`}},
		{"/clusters/gpu", 200, []string{`"name":"node-1"`, `"capacity":{"max_jobs":null,"max_gpus":64}`, `"available":"7500m"`}},
		{"/clusters/none", 404, nil},
		{"/queues/", 200, []string{`"name":"idle","depth":0,"processing":0,"max_concurrency":5,"oldest_job_age_seconds":null`, `"totals":{"queues":2,"depth":2`}},
		{"/queues/idle", 200, []string{`"jobs":[]`}},
		{"/queues/inference", 200, []string{`"max_concurrency":100`, `"pool_depth":1`, `"depth":2`, pod, pooled}},
		{"/workflows/team-a/w", 200, []string{`"phase":"running"`, `{"from":"train","to":"deploy"}`, `"phase":"pending"`, `"job_name":"w-evaluate"`, `"train.model"`}},
		{"/workflows/team-a/x", 404, nil},
		{"/workflows/team-b/w", 404, nil},
		{"/workflows/team-a/W%20", 404, nil},
		{"/jobs/" + pod + "/logs", 200, []string{"first line of " + pod + "\nprogress 1\rprogress 2\n\nlast"}},
		{"/jobs/" + pod + "/logs?follow=true&tail=7&timestamps=false", 200, []string{"data: first line of " + pod + "\n\ndata: progress 1 progress 2\n\ndata: \n\ndata: last\n\nevent: end\ndata: {\"status\":\"queued\"}\n\n"}},
		{"/jobs/" + pooled + "/logs", 200, []string{"submitted by alice to queue inference"}},
	} {
		a := s.send(t, "GET", "/api/v1"+test.path, all, "")
		assert.Equal(t, test.status, a.status, "%s: %s", test.path, a.body)
		for _, part := range test.has {
			assert.Contains(t, string(a.body), part)
		}
	}
	assert.Equal(t, rest.LogOptions{Follow: true, Tail: 7}, k.options)
	k.err = fmt.Errorf("%w: secret", jobs.ErrUnavailable)
	for _, path := range []string{"/clusters/", "/clusters/gpu", "/queues/", "/queues/idle", "/workflows/team-a/w", "/jobs/" + pod + "/logs"} {
		a := s.send(t, "GET", "/api/v1"+path, all, "")
		assert.Equal(t, 503, a.status, path)
	}
}

// rights of a cluster: who may what.
type rights struct {
	allowed map[string]bool
	err     error
}

func (r *rights) Allowed(_ context.Context, user auth.User, a auth.Attributes) (bool, string, error) {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	return r.allowed[fmt.Sprintf("%s %s %s %s/%s", user.Username, a.Verb, resource, a.Namespace, a.Name)], "", r.err
}

func TestRightsInACluster(t *testing.T) {
	r := &rights{allowed: map[string]bool{
		"alice create aijobs team-a/": true, "alice get aijobs team-a/": true, "alice list aijobs team-a/": true, "alice list aijobqueues /": true,
		"worker work aijobqueues /inference": true, "admin get aijobs team-a/": true, "admin list aijobs team-a/": true,
	}}
	s := newService(t, newMemory(), func(o *rest.Options) { o.Authorizer, o.Kubernetes = r, &cluster{} })
	id := s.submit(t, all, `{"job_type":"inference"}`)
	for _, test := range []struct {
		name, method, path, user, body string
		status                         int
		has                            string
	}{
		{"create where no Role allows it", "POST", "/jobs/", all, `{"job_type":"inference","namespace":"default"}`, 403, "may not create aijobs"},
		{"get", "GET", "/jobs/" + id, all, "", 200, id},
		{"get as who may that alone", "GET", "/jobs/" + id, admin, "", 200, id},
		{"get as who may not", "GET", "/jobs/" + id, reader, "", 404, "NOT_FOUND"},
		{"cancel as who may only get", "DELETE", "/jobs/" + id, all, "", 403, "may not delete aijobs"},
		{"requeue as who may only get", "POST", "/jobs/" + id + "/requeue", admin, "", 403, "may not create aijobs"},
		{"list", "GET", "/jobs/", all, "", 200, `"total":1`},
		{"list as who may in one namespace", "GET", "/jobs/", admin, "", 200, `"total":1`},
		{"list as who may not", "GET", "/jobs/", reader, "", 403, "may not list aijobs"},
		{"queues", "GET", "/queues/", all, "", 200, `"inference"`},
		{"queues as who may not", "GET", "/queues/", reader, "", 403, "may not list aijobqueues"},
		{"lease", "POST", "/tasks/lease", worker, `{"queue":"inference","worker_id":"w"}`, 200, id},
		{"lease of another queue", "POST", "/tasks/lease", worker, `{"queue":"training","worker_id":"w"}`, 403, "may not work aijobqueues"},
		{"heartbeat", "POST", "/tasks/" + id + "/heartbeat", worker, `{"lease_token":1}`, 200, "cancel"},
		{"heartbeat as who may not", "POST", "/tasks/" + id + "/heartbeat", all, `{"lease_token":1}`, 404, "does not cover its queue"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.send(t, test.method, "/api/v1"+test.path, test.user, test.body)
			assert.Equal(t, test.status, a.status, "%s", a.body)
			assert.Contains(t, string(a.body), test.has)
		})
	}
	r.err = errors.New("no answer")
	a := s.send(t, "POST", "/api/v1/jobs/", other, `{"job_type":"inference"}`)
	assert.Equal(t, 503, a.status, "%s", a.body)
}
