package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// account compares ends and counts in statuses with what happened.
func (l *workload) account(ctx context.Context) {
	var trainings mlv1.TrainingJobList
	var tries aiplatformv1alpha1.AIJobList
	var workflows aiplatformv1alpha1.AgentWorkflowList
	var spots spotv1alpha1.SpotInstanceJobList
	var read []client.Object
	for _, list := range []client.ObjectList{&trainings, &tries, &workflows, &spots} {
		if err := l.List(ctx, list, client.InNamespace(l.namespace)); err != nil {
			l.note("list %T: %v", list, err)
			return
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			read = append(read, object.(client.Object))
			return nil
		})
	}
	l.watcher.catchUp(ctx, read...)
	l.checks.addN(countsAgree, len(read))
	l.checks.addN(endsExplained, len(read))
	for i := range trainings.Items {
		l.endOfTraining(&trainings.Items[i])
		l.countsOfTraining(&trainings.Items[i])
	}
	for i := range tries.Items {
		l.endOfAIJob(&tries.Items[i], workflows.Items)
		l.countsOfAIJob(&tries.Items[i])
	}
	for i := range workflows.Items {
		l.endOfWorkflow(&workflows.Items[i], tries.Items)
	}
	for i := range spots.Items {
		l.endOfSpot(&spots.Items[i])
		l.countsOfSpot(&spots.Items[i])
	}
}

// jobsOf are all Jobs that an object ever had, in the order in which they were made.
func (v *watcher) jobsOf(owner types.UID) (jobs []*batchv1.Job) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, job := range v.jobs {
		if by := metav1.GetControllerOf(job); by != nil && by.UID == owner {
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(cmp.Compare(numberIn(a, mlv1.AnnotationStart), numberIn(b, mlv1.AnnotationStart)), cmp.Compare(a.Name, b.Name))
	})
	return jobs
}

func numberIn(object client.Object, annotation string) int {
	n, err := strconv.Atoi(object.GetAnnotations()[annotation])
	if err != nil {
		return 0
	}
	return n
}

// tried is what the attempts of a job came to.
type tried struct {
	failed, either int // attempts that must, and that may, be counted as failures
	programs       int // that failed by themselves, at most
	withFailure    int // attempts in which one did
}

// countsOfTraining compares the counts of a TrainingJob with its Jobs and what befell them. Each start made one Job, and the last Job of
// each attempt but the last is the one whose end made the job start again.
func (l *workload) countsOfTraining(job *mlv1.TrainingJob) {
	s, jobs := job.Status, l.watcher.jobsOf(job.UID)
	wrong := func(format string, arguments ...any) {
		l.note("TrainingJob %s: %s; %s", job.Name, fmt.Sprintf(format, arguments...), describe(job))
	}
	last := map[int]*batchv1.Job{}
	for i, workers := range jobs {
		if start := numberIn(workers, mlv1.AnnotationStart); start != i {
			wrong("the Job made as number %d says that it is start %d", i, start)
		}
		last[numberIn(workers, mlv1.AnnotationAttempt)] = workers
	}
	// One that fails because another of its objects is refused ends before it looks at the Job that it has just made.
	unseen := s.State == mlv1.StateFailed && s.Reason == reasons.InvalidSpec && int(s.StartCount) == len(jobs)-1
	if int(s.StartCount) != len(jobs) && !unseen {
		wrong("it counts %d starts, and %d Jobs were made", s.StartCount, len(jobs))
	}
	restarts := int(s.RestartCount)
	// One that fails may do so before the attempt that was decided on began.
	undone := s.State == mlv1.StateFailed && restarts == len(last)
	if restarts != len(last)-1 && !undone && len(last) > 0 {
		wrong("it counts %d restarts, and Jobs of %d attempts were made", restarts, len(last))
	}
	var sum tried
	for number := range restarts + 1 {
		workers := last[number]
		if workers == nil {
			if number < restarts {
				wrong("no Job of attempt %d was ever made", number)
			}
			continue
		}
		count, failed := l.nodes.history.judged(attempt{owner: workers.UID}, l.watcher.endOf(job.UID))
		sum.add(count, failed, number < restarts)
	}
	counted, limit, mostFailures := int(s.RestartCount-s.DisruptionCount), int(ptr.Deref(job.Spec.FailurePolicy.BackoffLimit, 3)), sum.withFailure
	switch {
	case job.Spec.Elastic != nil:
		// Workers that failed are counted one by one, but for those that end while the job is made smaller, is stopped or starts again.
		for _, workers := range jobs {
			if workers != last[numberIn(workers, mlv1.AnnotationAttempt)] {
				_, failed := l.nodes.history.judged(attempt{owner: workers.UID}, l.watcher.endOf(job.UID))
				sum.programs += failed
			}
		}
		mostFailures = sum.programs
		if counted += int(s.WorkerFailures); counted > mostFailures {
			wrong("it counts %d failures, and %d programs failed", counted, mostFailures)
		}
	case counted < sum.failed || counted > sum.failed+sum.either:
		wrong("it counts %d failures, and of its attempts %d failed, and %d may be counted either way", counted, sum.failed, sum.either)
	}
	if s.State == mlv1.StateFailed && s.Reason == reasons.BackoffLimitExceeded && mostFailures <= limit {
		wrong("it failed for its backoffLimit %d, and no more than %d failures happened", limit, mostFailures)
	}
}

// countsOfAIJob compares the counts of an AIJob with what befell its tries.
func (l *workload) countsOfAIJob(job *aiplatformv1alpha1.AIJob) {
	var sum tried
	over := int(triesOf(job))
	for number := range over + 1 {
		count, failed := l.nodes.history.judged(attempt{job.UID, strconv.Itoa(number)}, l.watcher.endOf(job.UID))
		sum.add(count, failed, number < over)
	}
	wrong := func(format string, arguments ...any) {
		l.note("AIJob %s: %s; %s", job.Name, fmt.Sprintf(format, arguments...), describe(job))
	}
	retries, limit := int(job.Status.RetryCount), int(ptr.Deref(job.Spec.RetryPolicy.MaxRetries, 3))
	if retries > limit {
		wrong("it was tried again %d times, of %d", retries, limit)
	}
	if retries < sum.failed || retries > sum.failed+sum.either {
		wrong("it counts %d retries, and of its tries %d failed, and %d may be counted either way", retries, sum.failed, sum.either)
	}
	if job.Status.Phase == aiplatformv1alpha1.AIJobDeadLetter && sum.withFailure <= limit {
		wrong("it used up its %d retries, and in %d tries programs failed", limit, sum.withFailure)
	}
}

// countsOfSpot compares the counts of a SpotInstanceJob with its Jobs, and with the replicas that were ever called preempted.
func (l *workload) countsOfSpot(job *spotv1alpha1.SpotInstanceJob) {
	starts := map[string]int32{}
	for _, replica := range l.watcher.jobsOf(job.UID) {
		starts[replica.Labels[spotv1alpha1.LabelReplica]]++
	}
	l.watcher.mu.Lock()
	taken := len(l.watcher.taken[job.UID])
	l.watcher.mu.Unlock()
	unseen := 0 // those that were stopped when another succeeded leave the status, with what befell them
	if job.Status.Phase == spotv1alpha1.JobSucceeded {
		unseen = max(int(ptr.Deref(job.Spec.Replicas, 0))-len(job.Status.JobStatuses), 0)
	}
	if counted := int(job.Status.PreemptionCount); counted < taken || counted > taken+unseen {
		l.note("SpotInstanceJob %s: it counts %d preemptions, and %d of its Jobs were called preempted; %s", job.Name, job.Status.PreemptionCount, taken, describe(job))
	}
	for _, replica := range job.Status.JobStatuses {
		index := l.watcher.replicaOf(job.UID, replica.Name)
		if replica.RestartCount != starts[index]-1 {
			l.note("SpotInstanceJob %s: replica %s counts %d restarts, and %d Jobs of it were made", job.Name, index, replica.RestartCount, starts[index])
		}
	}
}

// replicaOf is the number of the replica that a Job was made for.
func (v *watcher) replicaOf(owner types.UID, name string) string {
	for _, job := range v.jobsOf(owner) {
		if job.Name == name {
			return job.Labels[spotv1alpha1.LabelReplica]
		}
	}
	return ""
}

// endOf is when an object was seen to have ended; now when it was not.
func (v *watcher) endOf(of types.UID) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at, ok := v.ended[of]; ok {
		return at
	}
	return time.Now()
}

func (t *tried) add(count mustCount, failed int, over bool) {
	t.programs += failed
	if failed > 0 {
		t.withFailure++
	}
	switch {
	case !over:
	case count == asFailure:
		t.failed++
	case count == asEither:
		t.either++
	}
}
