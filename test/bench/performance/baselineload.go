package performance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// queueLoad creates AIJobs, watches them to their end, and plays scheduler and kubelet for their pods. It shares the processors with what
// is measured: it writes what must be written, reads by two watches, and decodes little.
type queueLoad struct {
	namespace string
	typed     *kubernetes.Clientset
	jobsAPI   rest.Interface
	// fail ends the load with the first error.
	fail  context.CancelCauseFunc
	ended chan struct{}

	// start is when the first job is created.
	start time.Time

	// jobs are the same from the start on; what happened to each is guarded by the mutex.
	jobs  map[string]*loadJob
	mutex sync.Mutex
	// What follows is guarded by the mutex.
	// created, scheduled and done count jobs.
	created, scheduled, done int
	// last is when the last job ended, late how long after its time one was created at most.
	last time.Time
	late time.Duration
	// holds are the units that pods of a cohort hold, most the most of them at any time.
	holds, most []int64
}

// baselineCreators is how many clients create jobs at the same time: few, since more of them would only wait in the API server, which
// has no time then to report changes.
const baselineCreators = 6

// loadJob is a job and when what happened to it.
type loadJob struct {
	baseline.Job

	sent, scheduled, ended time.Time
}

// newLoad has clients, but no jobs yet.
func (c *cluster) newLoad(namespace string) *queueLoad {
	http, err := rest.HTTPClientFor(c.config)
	require.NoError(c, err)
	jobsAPI, err := apiutil.RESTClientForGVK(aiplatformv1alpha1.GroupVersion.WithKind("AIJob"), false, false, c.config,
		serializer.NewCodecFactory(c.client.Scheme()), http)
	require.NoError(c, err)
	return &queueLoad{
		namespace: namespace, typed: c.typed(), jobsAPI: jobsAPI, ended: make(chan struct{}), start: time.Now(),
		jobs: map[string]*loadJob{}, holds: make([]int64, baseline.Cohorts), most: make([]int64, baseline.Cohorts),
	}
}

// runLoad runs jobs; all must succeed.
func (c *cluster) runLoad(ctx context.Context, namespace string, jobs []baseline.Job) *queueLoad {
	l := c.newLoad(namespace)
	ctx, l.fail = context.WithCancelCause(ctx)
	defer l.fail(nil)
	for _, j := range jobs {
		l.jobs[j.Name] = &loadJob{Job: j}
	}
	// The watches go on from here.
	none, err := l.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	require.NoError(c, err)
	go l.watchJobs(ctx, none.ResourceVersion)
	go l.watchPods(ctx, none.ResourceVersion)
	go l.create(ctx, jobs)

	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-l.ended:
			return l
		case <-ctx.Done():
			require.NoError(c, context.Cause(ctx), "%s", l)
		case <-ticker.C:
			require.False(c, c.running[managerName].Ended(), "the manager ended")
			say("%s", l)
		}
	}
}

// String implements fmt.Stringer.
func (l *queueLoad) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return fmt.Sprintf("of %d jobs %d created, at most %.1f s late, %d scheduled, %d ended; cohorts hold %v units",
		len(l.jobs), l.created, l.late.Seconds(), l.scheduled, l.done, l.holds)
}

// create creates the jobs, each at its time, or as soon after it as the API server takes it.
func (l *queueLoad) create(ctx context.Context, jobs []baseline.Job) {
	var clients errgroup.Group
	clients.SetLimit(baselineCreators)
	for _, j := range jobs {
		due := l.start.Add(j.After)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		clients.Go(func() error { // waits for a client
			now := time.Now()
			l.mutex.Lock()
			l.created++
			l.jobs[j.Name].sent, l.late = now, max(l.late, now.Sub(due))
			l.mutex.Unlock()
			if err := l.post(ctx, j); err != nil {
				l.fail(fmt.Errorf("create AIJob %s: %w", j.Name, err))
			}
			return nil
		})
	}
}

// post creates a job. A unit is a core.
func (l *queueLoad) post(ctx context.Context, j baseline.Job) error {
	job := builders.AIJob(j.Name).Namespace(l.namespace).Queue(j.Queue).Priority(j.Class.Priority).
		Request(corev1.ResourceCPU, fmt.Sprint(j.Class.Units)).ToCreate()
	job.SetGroupVersionKind(aiplatformv1alpha1.GroupVersion.WithKind("AIJob"))
	body, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return l.jobsAPI.Post().Namespace(l.namespace).Resource("aijobs").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// watchJobs notes the states of the jobs.
func (l *queueLoad) watchJobs(ctx context.Context, version string) {
	for ctx.Err() == nil {
		err := l.watchJobsFrom(ctx, &version)
		if err != nil {
			l.fail(fmt.Errorf("watch AIJobs: %w", err))
			return
		}
	}
}

// watchJobsFrom returns when the API server ends the watch, as it does with clients that do not keep up: it goes on from the version.
func (l *queueLoad) watchJobsFrom(ctx context.Context, version *string) error {
	stream, err := l.jobsAPI.Get().Namespace(l.namespace).Resource("aijobs").Param("watch", "1").Param("resourceVersion", *version).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	changes := json.NewDecoder(stream)
	for {
		var is struct { // what counts of a change
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
				Status   json.RawMessage
			}
		}
		if err := changes.Decode(&is); err != nil {
			return nil //nolint:nilerr // the stream has ended
		}
		if is.Type == "ERROR" {
			return errors.New(string(is.Object.Status))
		}
		*version = is.Object.Metadata.ResourceVersion
		if len(is.Object.Status) == 0 {
			continue
		}
		var status struct{ Phase aiplatformv1alpha1.AIJobPhase }
		if err := json.Unmarshal(is.Object.Status, &status); err != nil {
			return err
		}
		if err := l.note(is.Object.Metadata.Name, status.Phase); err != nil {
			return err
		}
	}
}

// note that a job is in a phase now.
func (l *queueLoad) note(name string, phase aiplatformv1alpha1.AIJobPhase) error {
	now := time.Now()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	j := l.jobs[name]
	if j == nil {
		return fmt.Errorf("AIJob %s is none of these", name)
	}
	switch phase {
	case "", aiplatformv1alpha1.AIJobPending, aiplatformv1alpha1.AIJobQueued:
		if !j.scheduled.IsZero() {
			return fmt.Errorf("AIJob %s lost its place", name)
		}
	case aiplatformv1alpha1.AIJobScheduled, aiplatformv1alpha1.AIJobRunning:
		if j.scheduled.IsZero() {
			j.scheduled = now
			l.scheduled++
		}
	case aiplatformv1alpha1.AIJobSucceeded:
		if !j.ended.IsZero() {
			return nil
		}
		if j.scheduled.IsZero() {
			return fmt.Errorf("AIJob %s ended, and was never Scheduled", name)
		}
		j.ended = now
		if l.done++; l.done == len(l.jobs) {
			l.last = now
			close(l.ended)
		}
	default:
		return fmt.Errorf("AIJob %s is %s", name, phase)
	}
	return nil
}

// hold notes that a pod of a cohort takes units, or gives them back.
func (l *queueLoad) hold(cohort int, units int64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.holds[cohort] += units
	l.most[cohort] = max(l.most[cohort], l.holds[cohort])
}
