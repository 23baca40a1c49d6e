package runner

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientrest "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const patience = 30 * time.Second

var api = apiserver.New(apiserver.OwnCRDs)

func TestMain(m *testing.M) { api.Main(m) }

// world is a namespace with jobs for it, and the Dispatchers of some replicas.
type world struct {
	t         *testing.T
	cluster   *Cluster
	admin     client.Client
	store     *store
	namespace string
	replicas  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: newStore(), cluster: newCluster(t, api.Config(t))}
	var err error
	w.admin, err = client.New(api.Config(t), client.Options{})
	require.NoError(t, err)
	w.namespace = w.newNamespace()
	return w
}

func (w *world) newNamespace() string {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "jobs-"}}
	require.NoError(w.t, w.admin.Create(w.t.Context(), namespace))
	return namespace.Name
}

func newCluster(t *testing.T, config *clientrest.Config) *Cluster {
	t.Helper()
	cluster, err := NewCluster(config, Options{QPS: -1})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return cluster
}

func settings() Settings {
	return Settings{
		MaxAIJobs: 100, MaxWaiting: 50, TTL: time.Hour, Discovery: 50 * time.Millisecond, Sweep: 200 * time.Millisecond,
		LeaseWait: 100 * time.Millisecond, Backoff: time.Second,
	}
}

// replica starts a Dispatcher, which ends when the returned function is called, or with the test.
func (w *world) replica(change ...func(*Settings)) (*Dispatcher, func()) {
	w.t.Helper()
	return w.replicaOf(w.store, change...)
}

// replicaOf starts one that has its jobs from a store.
func (w *world) replicaOf(store jobs.Store, change ...func(*Settings)) (*Dispatcher, func()) {
	w.t.Helper()
	s := settings()
	w.replicas++
	s.Worker = fmt.Sprintf("replica-%d", w.replicas)
	for _, c := range change {
		c(&s)
	}
	d := NewDispatcher(w.cluster, store, s, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(w.t.Output(), nil)))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	over := false
	end := func() {
		if !over {
			over = true
			stop()
			assert.NoError(w.t, <-ended)
		}
	}
	w.t.Cleanup(end)
	return d, end
}

// job of one pod.
func (w *world) job(change ...func(*jobs.Job)) *jobs.Job {
	job := &jobs.Job{
		Namespace: w.namespace, Queue: "inference", Type: "inference", Executor: jobs.Kubernetes, Priority: 50,
		Image: "registry.example.com/model:1", Retry: jobs.Retry{MaxRetries: 3, BackoffMultiplier: 2}, Submitter: "alice",
	}
	for _, c := range change {
		c(job)
	}
	return job
}

// submit jobs and return their IDs.
func (w *world) submit(change ...func(*jobs.Job)) string {
	w.t.Helper()
	job := w.job(change...)
	_, err := w.store.Submit(w.t.Context(), []*jobs.Job{job})
	require.NoError(w.t, err)
	return job.ID
}

func (w *world) eventually(what string, condition func(*assert.CollectT)) {
	w.t.Helper()
	require.EventuallyWithT(w.t, condition, patience, 50*time.Millisecond, what)
}

// aijob waits for the AIJob of a job.
func (w *world) aijob(id string) *aiplatformv1alpha1.AIJob {
	w.t.Helper()
	aijob := &aiplatformv1alpha1.AIJob{}
	w.eventually("an AIJob", func(c *assert.CollectT) {
		require.NoError(c, w.cluster.direct.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + id}, aijob))
	})
	return aijob
}

// dryRun is the API server's answer to an AIJob in a namespace, which it does not keep.
func (w *world) dryRun(namespace string) error {
	probe := w.job(func(job *jobs.Job) { job.ID, job.Namespace = "probe", namespace })
	aijob, err := newAIJob(probe, "")
	if err != nil {
		return err
	}
	return w.cluster.direct.Create(w.t.Context(), aijob, client.DryRunAll)
}

// reaches writes the status of an AIJob as its controller would.
func (w *world) reaches(id string, phase aiplatformv1alpha1.AIJobPhase, change ...func(*aiplatformv1alpha1.AIJobStatus)) {
	w.t.Helper()
	aijob := w.aijob(id)
	before := aijob.DeepCopy()
	aijob.Status.Phase = phase
	if aijob.Status.Phase.Ended() {
		now := metav1.Now()
		aijob.Status.CompletionTime = &now
	}
	for _, c := range change {
		c(&aijob.Status)
	}
	require.NoError(w.t, w.cluster.direct.Status().Patch(w.t.Context(), aijob, client.MergeFrom(before)))
}

// awaitStatus of a job, and return the job.
func (w *world) awaitStatus(id string, status jobs.Status) jobs.Job {
	w.t.Helper()
	var job jobs.Job
	w.eventually("job is "+string(status), func(c *assert.CollectT) {
		var err error
		job, err = w.store.Get(w.t.Context(), id)
		require.NoError(c, err)
		require.Equal(c, status, job.Status)
	})
	return job
}

// awaitGone waits until a Dispatcher looks after nothing.
func (w *world) awaitGone(d *Dispatcher) {
	w.t.Helper()
	w.eventually("nothing is left to do", func(c *assert.CollectT) {
		d.mu.Lock()
		defer d.mu.Unlock()
		assert.Empty(c, d.tasks)
		assert.Empty(c, d.strays)
	})
}
