package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

const (
	// podLogLimit is how many bytes are read of one pod, and kept of all, for an answer that does not follow.
	podLogLimit = 8 << 20
	// followPoll is how often it is looked for further pods, and for the end of the job.
	followPoll = time.Second
	// logPods that are read at the same time, for all answers together: each may take podLogLimit.
	logPods = 8
)

// Logs of the pods of a job.
func (c *Cluster) Logs(ctx context.Context, job jobs.Job, options rest.LogOptions) (rest.Lines, error) {
	pods, err := c.podsOf(ctx, &job)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 && job.Status.Ended() {
		return rest.LinesOf(withoutPods(&job)), nil
	}
	if options.Follow && !job.Status.Ended() {
		return c.followLogs(&job, options), nil
	}
	text, err := c.readLogs(ctx, &job, pods, options)
	return rest.LinesOf(text), err
}

// withoutPods is what can be said of a job whose pods are gone.
func withoutPods(job *jobs.Job) string {
	var text strings.Builder
	fmt.Fprintf(&text, "[job-service] The pods of this job are gone, and with them their logs. The job has ended as %s", job.Status)
	if !job.CompletedAt.IsZero() {
		fmt.Fprintf(&text, " at %s", job.CompletedAt.UTC().Format(time.RFC3339))
	}
	text.WriteString(".\n")
	if job.Error != "" {
		fmt.Fprintf(&text, "[job-service] Error: %s\n", job.Error)
	}
	if len(job.Result) > 0 {
		fmt.Fprintf(&text, "[job-service] Result: %s\n", job.Result)
	}
	return text.String()
}

// member is the pod of one member of a job.
type member struct {
	index, try int
	pod        *corev1.Pod
}

// podsOf a job: the newest of each member, by index.
func (c *Cluster) podsOf(ctx context.Context, job *jobs.Job) ([]member, error) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	name := nameOf(job)
	pods, err := c.typed.CoreV1().Pods(name.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: aiplatformv1alpha1.LabelAIJob + "=" + name.Name,
	})
	if err != nil {
		return nil, unavailable("list the job's pods", err)
	}
	return newest(name.Name, pods.Items), nil
}

// newest pod of each member. Pods are named AIJOB-INDEX-TRY.
func newest(aijob string, pods []corev1.Pod) []member {
	byIndex := map[int]member{}
	for i := range pods {
		index, try, _ := strings.Cut(strings.TrimPrefix(pods[i].Name, aijob+"-"), "-")
		m := member{pod: &pods[i]}
		var errs [2]error
		m.index, errs[0] = strconv.Atoi(index)
		m.try, errs[1] = strconv.Atoi(try)
		if other, known := byIndex[m.index]; errors.Join(errs[:]...) == nil && (!known || m.try > other.try) {
			byIndex[m.index] = m
		}
	}
	return slices.SortedFunc(maps.Values(byIndex), func(a, b member) int { return cmp.Compare(a.index, b.index) })
}

// started says whether a pod may have written something.
func started(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodPending || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	state := pod.Status.ContainerStatuses[0].State
	return state.Running != nil || state.Terminated != nil && state.Terminated.ContainerID != ""
}

// readLogs returns the last lines of all pods, in the order in which they were written.
func (c *Cluster) readLogs(ctx context.Context, job *jobs.Job, pods []member, options rest.LogOptions) (string, error) {
	var lock sync.Mutex
	var all []line
	var errs []error
	var group sync.WaitGroup
	for _, m := range pods {
		if !started(m.pod) || options.Tail <= 0 {
			continue
		}
		group.Go(func() {
			lines, err := c.podLines(ctx, m, options.Tail)
			lock.Lock()
			defer lock.Unlock()
			all = newestLines(append(all, lines...), options.Tail, podLogLimit)
			errs = append(errs, err)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil && len(all) == 0 {
		return "", unavailable("read the logs", err)
	}
	var text strings.Builder
	for i := range all {
		text.WriteString(all[i].text(job.Gang.Enabled, options.Timestamps))
	}
	return text.String(), nil
}

func (c *Cluster) podLines(ctx context.Context, m member, tail int) (lines []line, err error) {
	select {
	case c.logSlots <- struct{}{}:
		defer func() { <-c.logSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, stop := context.WithTimeout(ctx, requestTimeout)
	defer stop()
	count, limit := int64(tail), int64(podLogLimit)
	err = c.podLog(ctx, m, &corev1.PodLogOptions{Timestamps: true, TailLines: &count, LimitBytes: &limit}, func(l line) error {
		lines = append(lines, l)
		return nil
	})
	return lines, err
}

// podLog calls do with the lines of a pod's container. A pod that is gone, or whose node has no log of it, has none.
func (c *Cluster) podLog(ctx context.Context, m member, options *corev1.PodLogOptions, do func(line) error) error {
	options.Container = m.pod.Spec.Containers[0].Name
	stream, err := c.typed.CoreV1().Pods(m.pod.Namespace).GetLogs(m.pod.Name, options).Stream(ctx)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		return nil
	case err != nil:
		return err
	}
	defer stream.Close()
	return eachLine(stream, func(text string) error { return do(parse(m.index, text)) })
}

// followLogs tells what the pods of a job write, until the job has ended.
func (c *Cluster) followLogs(job *jobs.Job, options rest.LogOptions) rest.Lines {
	return func(ctx context.Context, tell func(string) error) error {
		pods, ctx := errgroup.WithContext(ctx)
		var telling sync.Mutex
		f := &follower{cluster: c, job: job, options: options, followed: map[types.UID]bool{}, pods: pods, tell: func(line string) error {
			telling.Lock()
			defer telling.Unlock()
			return tell(line)
		}}
		f.run(ctx)
		return pods.Wait()
	}
}

// follower tells what the pods of one job write.
type follower struct {
	cluster  *Cluster
	job      *jobs.Job
	options  rest.LogOptions
	followed map[types.UID]bool
	pods     *errgroup.Group
	tell     func(line string) error
}

// run follows every pod that comes, until the AIJob has ended.
func (f *follower) run(ctx context.Context) {
	seen := ""
	waiting := true
	_ = wait.PollUntilContextCancel(ctx, followPoll, true, func(ctx context.Context) (end bool, err error) {
		// Before the pods, so that those of the last try are still followed.
		version, end := f.state(ctx)
		if version != seen || waiting || end {
			if pods, err := f.cluster.podsOf(ctx, f.job); err == nil {
				waiting = f.followNew(ctx, pods)
				seen = version
			}
		}
		return end, nil
	}) // It ends with the context at the latest, which is no error.
}

// state of the AIJob: its version, and whether it has ended or is gone.
func (f *follower) state(ctx context.Context) (version string, end bool) {
	aijob := &aiplatformv1alpha1.AIJob{}
	err := get(ctx, f.cluster.cached, nameOf(f.job), aijob, "AIJob")
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		// Not made yet, unless it had already begun to run.
		return "", len(f.followed) > 0
	case err != nil:
		return "", false
	}
	return aijob.ResourceVersion, aijob.Status.Phase.Ended()
}

// followNew begins to follow the pods that have started since, and says whether some have not started yet.
func (f *follower) followNew(ctx context.Context, pods []member) (waiting bool) {
	for _, m := range pods {
		switch {
		case f.followed[m.pod.UID]:
		case !started(m.pod):
			waiting = true
		default:
			// What was there before is limited by tail, what comes later is not.
			tail := int64(f.options.Tail)
			options := &corev1.PodLogOptions{Follow: true, Timestamps: true, TailLines: &tail}
			f.followed[m.pod.UID] = true
			f.pods.Go(func() error { return f.follow(ctx, m, options) })
		}
	}
	return waiting || len(pods) == 0
}

func (f *follower) follow(ctx context.Context, m member, options *corev1.PodLogOptions) error {
	err := f.cluster.podLog(ctx, m, options, func(l line) error { return f.tell(l.text(f.job.Gang.Enabled, f.options.Timestamps)) })
	if err != nil && ctx.Err() == nil {
		return f.tell(fmt.Sprintf("[job-service] The log of pod %s broke off: %v\n", m.pod.Name, err))
	}
	return nil
}
