package performance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
)

// queueLoad creates AIJobs, watches them to their end, and plays scheduler and kubelet for their pods. It shares the processors with what
// is measured: it writes what must be written, reads by two watches, and decodes little.
type queueLoad struct {
	namespace string
	typed     *kubernetes.Clientset
	jobsAPI   rest.Interface
	failed    chan error
	ended     chan struct{}

	mutex sync.Mutex
	// What follows is guarded by the mutex.
	jobs map[string]*loadJob
	// scheduled and done count jobs.
	scheduled, done int
	// start is when the first job was created, last when the last ended, late how long after its time one was created at most.
	start, last time.Time
	late        time.Duration
	// holds are the units that pods of a cohort hold, most the most of them at any time.
	holds, most []int64
}

// baselineCreators is how many clients create jobs at the same time: few, since more of them would only wait in the API server, which
// has no time then to report changes.
const baselineCreators = 6

// loadJob is a job and when what happened to it.
type loadJob struct {
	baseline.Job

	cohort                 int
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
		namespace: namespace, typed: c.typed(), jobsAPI: jobsAPI, failed: make(chan error, 1), ended: make(chan struct{}),
		jobs: map[string]*loadJob{}, holds: make([]int64, baseline.Cohorts), most: make([]int64, baseline.Cohorts),
	}
}

// runLoad runs jobs; all must succeed.
func (c *cluster) runLoad(ctx context.Context, namespace string, jobs []baseline.Job) *queueLoad {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := c.newLoad(namespace)
	cohorts := map[string]int{}
	for c := range baseline.Cohorts {
		for q := range baseline.Queues {
			cohorts[baseline.Queue(c, q)] = c
		}
	}
	for _, j := range jobs {
		l.jobs[j.Name] = &loadJob{Job: j, cohort: cohorts[j.Queue]}
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
		case err := <-l.failed:
			require.NoError(c, err, "%s", l)
		case <-ctx.Done():
			require.NoError(c, ctx.Err(), "%s", l)
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
	created := 0
	for _, j := range l.jobs {
		if !j.sent.IsZero() {
			created++
		}
	}
	return fmt.Sprintf("of %d jobs %d created, at most %.1f s late, %d scheduled, %d ended; cohorts hold %v units",
		len(l.jobs), created, l.late.Seconds(), l.scheduled, l.done, l.holds)
}

// fail ends the load with the first error.
func (l *queueLoad) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	select {
	case l.failed <- err:
	default:
	}
}

// create creates the jobs, each at its time, or as soon after it as the API server takes it.
func (l *queueLoad) create(ctx context.Context, jobs []baseline.Job) {
	queue := make(chan baseline.Job, len(jobs))
	start := time.Now()
	l.mutex.Lock()
	l.start = start
	l.mutex.Unlock()
	for range baselineCreators {
		go func() {
			for j := range queue {
				if err := l.createOne(ctx, j, start.Add(j.After)); err != nil {
					l.fail(ctx, fmt.Errorf("create AIJob %s: %w", j.Name, err))
					return
				}
			}
		}()
	}
	defer close(queue)
	for _, j := range jobs {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(start.Add(j.After))):
			queue <- j
		}
	}
}

func (l *queueLoad) createOne(ctx context.Context, j baseline.Job, due time.Time) error {
	now := time.Now()
	l.mutex.Lock()
	l.jobs[j.Name].sent, l.late = now, max(l.late, now.Sub(due))
	l.mutex.Unlock()
	return l.post(ctx, j)
}

// post creates a job.
func (l *queueLoad) post(ctx context.Context, j baseline.Job) error {
	body, err := json.Marshal(aiJob(l.namespace, j))
	if err != nil {
		return err
	}
	return l.jobsAPI.Post().Namespace(l.namespace).Resource("aijobs").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// aiJob is a job of the scenario. A unit is a core.
func aiJob(namespace string, j baseline.Job) *aiplatformv1alpha1.AIJob {
	priority := j.Class.Priority
	return &aiplatformv1alpha1.AIJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: aiplatformv1alpha1.GroupVersion.String(), Kind: "AIJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: j.Name},
		Spec: aiplatformv1alpha1.AIJobSpec{
			JobType: aiplatformv1alpha1.JobInference, Image: "simulated", QueueName: j.Queue, Priority: &priority,
			Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(j.Class.Units, resource.DecimalSI),
			}},
		},
	}
}

// change is what counts of a change of an AIJob that a watch tells.
type change struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Status json.RawMessage `json:"status"`
	} `json:"object"`
}

// watchJobs notes the states of the jobs.
func (l *queueLoad) watchJobs(ctx context.Context, version string) {
	for ctx.Err() == nil {
		err := l.watchJobsFrom(ctx, &version)
		if err != nil {
			l.fail(ctx, fmt.Errorf("watch AIJobs: %w", err))
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
		var is change
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

func (l *queueLoad) job(name string) *loadJob {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.jobs[name]
}
