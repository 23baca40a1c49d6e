package trainingjob

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// elastic is a job of two workers, between one and four.
func elastic() *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Workers(2).Elastic(1, 4)
}

var elasticChildren = []string{
	"ServiceAccount bert-training", "Job bert-training, attempt 0",
	"ConfigMap bert-config", "Service bert-headless", "Service bert-master",
}

// trainingIn is the outline of an elastic job that goes on.
func trainingIn(reason string, workers mlv1.WorkersStatus) outline {
	return outline{
		Apply: elasticChildren, Scrape: "http://10.0.0.10:8080/metrics",
		State: mlv1.StateRunning, Reason: reason, Workers: workers,
		Conditions: conditions{"Admitted": admitted, "Initialized": "True " + reason, "Running": "True " + reason},
	}
}

func jobSize(t *testing.T, d desired) int32 {
	t.Helper()
	for _, object := range d.apply {
		if workers, ok := object.(*batchv1.Job); ok {
			assert.Equal(t, workers.Spec.Completions, workers.Spec.Parallelism)
			return *workers.Spec.Completions
		}
	}
	require.Fail(t, "no Job is applied")
	return 0
}

func message(d desired) string {
	return meta.FindStatusCondition(d.status.Conditions, reasons.ConditionRunning).Message
}

func TestElasticWorkersGrowInPlace(t *testing.T) {
	job := runningJob(t, elastic())
	pods := runningPods(job, 0)
	small, large := builders.Workers(job).Obj(), builders.Workers(job).Size(4).Obj()
	job.Spec.NumWorkers = 4

	asked := plan(see(job, small, pods...))
	lookingLike(t, trainingIn(reasons.Rescaling, mlv1.WorkersStatus{Total: 4, Active: 2}), withoutAgain(asked))
	assert.Equal(t, int32(4), jobSize(t, asked))
	assert.Equal(t, "2 of 4 workers run", message(asked))

	job.Status = asked.status
	starting := append(slices.Clone(pods), builders.Pod(large, 2).Running().Obj(), builders.Pod(large, 3).Unschedulable("full").Obj())
	waits := plan(see(job, large, starting...).after(time.Minute))
	lookingLike(t, trainingIn(reasons.Rescaling, mlv1.WorkersStatus{Total: 4, Active: 3}), withoutAgain(waits))
	assert.Contains(t, message(waits), "3 of 4 workers run: pod bert-training-3-a0 fits on no node: full")

	job.Status = waits.status
	done := plan(see(job, large, runningPods(job, 0)...))
	lookingLike(t, trainingIn(reasons.WorkersRunning, mlv1.WorkersStatus{Total: 4, Active: 4}), done)
	assert.Equal(t, int32(4), done.status.Resources.Workers)
}

// withoutAgain leaves out when the plan is looked at again.
func withoutAgain(d desired) desired {
	d.again = 0
	return d
}

func TestElasticWorkersShrinkInPlace(t *testing.T) {
	job := runningJob(t, elastic().Workers(4))
	pods := runningPods(job, 0)
	job.Spec.NumWorkers = 2
	small := builders.Workers(job).Obj()

	asked := plan(see(job, builders.Workers(job).Size(4).Obj(), pods...))
	lookingLike(t, trainingIn(reasons.Rescaling, mlv1.WorkersStatus{Total: 2, Active: 2}), asked)
	assert.Equal(t, int32(2), jobSize(t, asked))

	job.Status = asked.status
	leave := func(replica int) *corev1.Pod {
		return builders.Pod(small, replica).Running().Deleting(time.Minute).Obj()
	}
	leaving := plan(see(job, small, pods[0], pods[1], leave(2), leave(3)))
	want := trainingIn(reasons.Rescaling, mlv1.WorkersStatus{Total: 2, Active: 2})
	want.Again = 75 * time.Second // should their kubelet not end them
	lookingLike(t, want, leaving)

	job.Status = leaving.status
	gone := plan(see(job, small, pods[0], pods[1], builders.Pod(small, 2).Failed(143).Deleting(time.Minute).Obj()))
	lookingLike(t, trainingIn(reasons.WorkersRunning, mlv1.WorkersStatus{Total: 2, Active: 2}), gone)
	assert.Zero(t, gone.status.WorkerFailures, "what was taken away did not fail")
}

func TestElasticWorkersAreResizedInEveryState(t *testing.T) {
	starting := elastic().Obj()
	starting.Status = plan(see(starting, builders.Workers(starting).Obj(), builders.Pod(builders.Workers(starting).Obj(), 0).Obj())).status
	require.Equal(t, mlv1.StateInitializing, starting.Status.State)
	restarting := failingJob(t, elastic(), 1)
	suspended := elastic().Suspended().Obj()
	suspended.Status = plan(see(suspended, nil)).status

	for name, test := range map[string]struct {
		job    *mlv1.TrainingJob
		change func(*mlv1.TrainingJobSpec)
		size   int32 // of the Job; 0 when there is none
		want   mlv1.State
		job4   bool // the Job that is applied has four pods
	}{
		"while initializing":                 {starting, func(s *mlv1.TrainingJobSpec) { s.NumWorkers = 4 }, 2, mlv1.StateInitializing, true},
		"while restarting":                   {restarting, func(s *mlv1.TrainingJobSpec) { s.NumWorkers = 4 }, 2, mlv1.StateRestarting, true},
		"while restarting, without a Job":    {restarting, func(s *mlv1.TrainingJobSpec) { s.NumWorkers = 4 }, 0, mlv1.StateRestarting, true},
		"while suspended":                    {suspended, func(s *mlv1.TrainingJobSpec) { s.NumWorkers = 4 }, 0, mlv1.StateSuspended, false},
		"when it is resumed":                 {suspended, func(s *mlv1.TrainingJobSpec) { s.NumWorkers, s.Suspend = 4, nil }, 0, mlv1.StateInitializing, true},
		"and back before the workers came":   {runningJob(t, elastic().Workers(4)), func(*mlv1.TrainingJobSpec) {}, 2, mlv1.StateRunning, true},
		"while it is asked to suspend":       {starting, func(s *mlv1.TrainingJobSpec) { s.NumWorkers, s.Suspend = 4, ptr.To(true) }, 2, mlv1.StateInitializing, false},
		"and down again while it is growing": {runningJob(t, elastic().Workers(4)), func(*mlv1.TrainingJobSpec) {}, 4, mlv1.StateRunning, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := test.job.DeepCopy()
			test.change(&job.Spec)
			o := see(job, nil)
			if test.size > 0 {
				workers := builders.Workers(job).Attempt(int(job.Status.RestartCount)).Size(test.size).Obj()
				o = see(job, workers, builders.Pod(workers, 0).Running().Obj())
			}
			d := plan(o)
			assert.Equal(t, test.want, d.status.State)
			assert.Equal(t, int32(4), d.status.Workers.Total)
			assert.Equal(t, job.Status.RestartCount, d.status.RestartCount, "a resize is no restart")
			if test.job4 {
				assert.Equal(t, int32(4), jobSize(t, d))
			}
		})
	}
}

func TestTheOthersGoOnWhenAnElasticWorkerIsLost(t *testing.T) {
	job := runningJob(t, elastic())
	workers := builders.Workers(job).Obj()
	first := builders.Pod(workers, 0).Running().Obj()
	failed := builders.Pod(workers, 1).Failed(137).Obj()

	lost := plan(see(job, workers, first, failed))
	want := trainingIn(reasons.WorkerLost, mlv1.WorkersStatus{Total: 2, Active: 1, Failed: 1})
	want.FailureReason = "worker 1 (pod bert-training-1-a0) was killed by signal 9 (exit code 137)"
	lookingLike(t, want, lost)
	assert.Equal(t, "goes on with 1 of 2 workers: "+want.FailureReason, message(lost))
	assert.Equal(t, int32(1), lost.status.WorkerFailures)
	assert.True(t, lost.status.LastFailure.Counted)

	job.Status = lost.status
	later := plan(see(job, workers, first, failed).after(time.Minute))
	assert.Equal(t, lost.status, later.status, "it is counted once, and not written again")

	again := builders.Pod(workers, 1).Again(10 * time.Second)
	returning := plan(see(job, workers, first, failed, again.Obj()))
	want = trainingIn(reasons.WorkerLost, mlv1.WorkersStatus{Total: 2, Active: 1, Failed: 1})
	want.FailureReason = job.Status.FailureReason
	lookingLike(t, want, returning)
	assert.Equal(t, "1 of 2 workers run", message(returning))

	job.Status = returning.status
	rejoined := plan(see(job, workers, first, failed, again.Running().Obj()))
	want = trainingIn(reasons.WorkersRunning, mlv1.WorkersStatus{Total: 2, Active: 2, Failed: 1})
	want.FailureReason = job.Status.FailureReason
	lookingLike(t, want, rejoined)
	assert.Zero(t, rejoined.status.RestartCount)
	assert.Equal(t, int32(1), rejoined.status.WorkerFailures)
}

func TestALossOfAnElasticWorkerIsNotCounted(t *testing.T) {
	job := runningJob(t, elastic().BackoffLimit(0).RestartPolicy(mlv1.RestartNever))
	workers := builders.Workers(job).Obj()
	first := builders.Pod(workers, 0).Running().Obj()
	for name, pod := range map[string]*corev1.Pod{
		"preempted":        builders.Pod(workers, 1).Failed(143).Disrupted("PreemptionByScheduler", "for another").Obj(),
		"evicted, running": builders.Pod(workers, 1).Running().Disrupted("EvictionByEvictionAPI", "drain").Deleting(time.Minute).Obj(),
		"deleted by hand":  builders.Pod(workers, 1).Running().Deleting(time.Minute).Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(see(job, workers, first, pod))
			assert.Equal(t, mlv1.StateRunning, d.status.State)
			assert.Equal(t, reasons.WorkerLost, d.status.Reason)
			assert.Zero(t, d.status.WorkerFailures)
			assert.False(t, d.status.LastFailure.Counted)
			assert.Empty(t, d.delete)
		})
	}
	ending := builders.Pod(workers, 1).Running().Obj()
	ending.Status.Conditions = nil
	unready := plan(see(job, workers, first, ending))
	assert.Equal(t, reasons.WorkersRunning, unready.status.Reason, "how a worker ends is seen a moment later")
	assert.Equal(t, int32(1), unready.status.Workers.Active)
	vanished := plan(see(job, workers, first))
	assert.Equal(t, reasons.WorkerLost, vanished.status.Reason, "a pod that is gone without a trace is lost too")
}

func TestWhenAnElasticJobRestarts(t *testing.T) {
	for name, test := range map[string]struct {
		job   *builders.TrainingJobBuilder
		pods  func(*batchv1.Job) []*corev1.Pod
		count int32 // disruptions
	}{
		"replica 0 failed": {elastic().Workers(3), func(w *batchv1.Job) []*corev1.Pod {
			return []*corev1.Pod{builders.Pod(w, 0).Failed(1).Obj(), builders.Pod(w, 1).Running().Obj(), builders.Pod(w, 2).Running().Obj()}
		}, 0},
		"replica 0 was lost, and others for it": {elastic().Workers(3), func(w *batchv1.Job) []*corev1.Pod {
			return []*corev1.Pod{
				builders.Pod(w, 0).Running().Disrupted("EvictionByEvictionAPI", "drain").Deleting(time.Minute).Obj(),
				builders.Pod(w, 1).Failed(75).Obj(), builders.Pod(w, 2).Failed(75).Obj(),
			}
		}, 1},
		"fewer are left than minWorkers": {elastic().Workers(3).Elastic(2, 4), func(w *batchv1.Job) []*corev1.Pod {
			return []*corev1.Pod{
				builders.Pod(w, 0).Running().Obj(),
				builders.Pod(w, 1).Failed(1).Obj(), builders.Pod(w, 2).Failed(143).Disrupted("PreemptionByScheduler", "").Obj(),
			}
		}, 1},
		"one of as many as minWorkers failed": {elastic().Elastic(2, 4), func(w *batchv1.Job) []*corev1.Pod {
			return []*corev1.Pod{builders.Pod(w, 0).Running().Obj(), builders.Pod(w, 1).Failed(1).Obj()}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			job := runningJob(t, test.job)
			d := plan(see(job, builders.Workers(job).Obj(), test.pods(builders.Workers(job).Obj())...))
			assert.Equal(t, mlv1.StateRestarting, d.status.State)
			assert.Equal(t, int32(1), d.status.RestartCount)
			assert.Equal(t, test.count, d.status.DisruptionCount)
			failures := d.status.RestartCount - d.status.DisruptionCount + d.status.WorkerFailures
			assert.LessOrEqual(t, failures, int32(1), "one failure is counted once")
			assert.Zero(t, d.status.Workers.Failed)
		})
	}
}

func TestAFailureWhileAnElasticJobIsResized(t *testing.T) {
	job := runningJob(t, elastic())
	workers := builders.Workers(job).Obj()
	job.Spec.NumWorkers = 4

	worker := plan(see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Failed(1).Obj()))
	assert.Equal(t, reasons.WorkerLost, worker.status.Reason)
	assert.Equal(t, int32(4), jobSize(t, worker), "it is resized all the same")

	master := plan(see(job, workers, builders.Pod(workers, 0).Failed(1).Obj(), builders.Pod(workers, 1).Running().Obj()))
	assert.Equal(t, mlv1.StateRestarting, master.status.State)
	job.Status = master.status
	next := plan(see(job, nil))
	assert.Equal(t, int32(4), jobSize(t, next), "the next attempt has the new size")
}

func TestFailuresOfElasticWorkersUseUpTheBackoffLimit(t *testing.T) {
	job := runningJob(t, elastic().BackoffLimit(1))
	workers := builders.Workers(job).Obj()
	first := builders.Pod(workers, 0).Running().Obj()
	pods := []*corev1.Pod{first, builders.Pod(workers, 1).Failed(1).Obj()}
	job.Status = plan(see(job, workers, pods...)).status
	require.Equal(t, mlv1.StateRunning, job.Status.State)

	d := plan(see(job, workers, append(pods, builders.Pod(workers, 1).Again(time.Minute).Failed(1).Obj())...))
	assert.Equal(t, mlv1.StateFailed, d.status.State)
	assert.Equal(t, reasons.BackoffLimitExceeded, d.status.Reason)
	assert.Contains(t, d.status.FailureReason, "failed 2 times, backoffLimit is 1")
}

func TestElasticWorkersThatMustNotBeReplacedEndTheJob(t *testing.T) {
	for name, test := range map[string]struct {
		job    *builders.TrainingJobBuilder
		code   int32
		reason string
	}{
		"a wrong setting":           {elastic(), 64, reasons.NonRetryableExitCode},
		"restartPolicy is Never":    {elastic().RestartPolicy(mlv1.RestartNever), 1, reasons.RestartPolicyNever},
		"no failure is allowed":     {elastic().BackoffLimit(0), 1, reasons.BackoffLimitExceeded},
		"restartPolicy is ExitCode": {elastic().RestartPolicy(mlv1.RestartExitCode), 3, reasons.NonRetryableExitCode},
	} {
		t.Run(name, func(t *testing.T) {
			job := runningJob(t, test.job)
			workers := builders.Workers(job).Obj()
			d := plan(see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Failed(test.code).Obj()))
			assert.Equal(t, mlv1.StateFailed, d.status.State)
			assert.Equal(t, test.reason, d.status.Reason)
		})
	}
}

func TestAnElasticTrainingIsDoneWhenReplica0Is(t *testing.T) {
	job := runningJob(t, elastic())
	workers := builders.Workers(job).Obj()
	d := plan(see(job, workers, builders.Pod(workers, 0).Succeeded("").Obj(), builders.Pod(workers, 1).Failed(143).Disrupted("PreemptionByScheduler", "").Obj()))
	assert.Equal(t, mlv1.StateCompleted, d.status.State)
}

func TestAnElasticJobBeginsWithFewerWhenTheOthersCannotCome(t *testing.T) {
	job := elastic().Obj()
	workers := builders.Workers(job).Obj()
	first, second := builders.Pod(workers, 0), builders.Pod(workers, 1)

	for name, test := range map[string]struct {
		pods []*corev1.Pod
		at   time.Duration
		want mlv1.State
	}{
		"the other is starting":          {[]*corev1.Pod{first.Running().Obj(), second.Obj()}, time.Second, mlv1.StateInitializing},
		"the other fits on no node":      {[]*corev1.Pod{first.Running().Obj(), builders.Pod(workers, 1).Unschedulable("full").Obj()}, 20 * time.Second, mlv1.StateRunning},
		"the other is starting for long": {[]*corev1.Pod{first.Running().Obj(), second.Obj()}, elasticPatience, mlv1.StateRunning},
		"replica 0 is the one missing":   {[]*corev1.Pod{builders.Pod(workers, 0).Obj(), builders.Pod(workers, 1).Running().Obj()}, time.Hour, mlv1.StateInitializing},
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(see(job, workers, test.pods...).after(test.at))
			assert.Equal(t, test.want, d.status.State)
			if test.want == mlv1.StateRunning {
				assert.Equal(t, reasons.WorkersStarting, d.status.Reason)
			}
		})
	}
}

func TestAJobOfAnEarlierVersionIsRestartedToBeResized(t *testing.T) {
	job := runningJob(t, elastic())
	old := builders.Workers(job).Obj()
	old.Spec.BackoffLimitPerIndex = nil
	pods := runningPods(job, 0)
	job.Spec.NumWorkers = 4

	d := plan(see(job, old, pods...))
	assert.Equal(t, mlv1.StateRestarting, d.status.State)
	assert.Equal(t, reasons.Rescaled, d.status.Reason)
}

func TestWhichJobsAreResizedInPlace(t *testing.T) {
	with := func(change func(*mlv1.TrainingJobSpec)) *mlv1.TrainingJob { return elastic().Spec(change).Obj() }
	for name, test := range map[string]struct {
		job  *mlv1.TrainingJob
		want bool
	}{
		"a job of fixed size":           {builders.TrainingJob("bert").Obj(), false},
		"the operator's own worker":     {elastic().Obj(), true},
		"the operator's own, named":     {with(func(s *mlv1.TrainingJobSpec) { s.Image = "worker:1" }), true},
		"that of an earlier version":    {with(func(s *mlv1.TrainingJobSpec) { s.Image = "worker:0" }), false},
		"an image with its own program": {with(func(s *mlv1.TrainingJobSpec) { s.Image = "mine:1" }), false},
		"torchrun":                      {with(func(s *mlv1.TrainingJobSpec) { s.Image, s.Command = "mine:1", []string{"torchrun", "train.py"} }), true},
		"torchrun below a shell":        {with(func(s *mlv1.TrainingJobSpec) { s.Command = []string{"sh", "-c", "exec torchrun train.py"} }), true},
		"the module":                    {with(func(s *mlv1.TrainingJobSpec) { s.Args = []string{"-m", "torch.distributed.run", "x.py"} }), true},
		"another program":               {with(func(s *mlv1.TrainingJobSpec) { s.Command = []string{"python", "train.py"} }), false},
		"another program that can":      {with(func(s *mlv1.TrainingJobSpec) { s.Image, s.Elastic.RescalePolicy = "mine:1", mlv1.RescaleInPlace }), true},
		"as it is asked for":            {elastic().Rescale(mlv1.RescaleRestart).Obj(), false},
		"another framework":             {with(func(s *mlv1.TrainingJobSpec) { s.Framework = mlv1.FrameworkJAX }), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, build.ResizesInPlace(test.job, build.Settings{WorkerImage: "worker:1"}))
			workers := build.Workers(test.job, build.Settings{WorkerImage: "worker:1"}, 0)
			assert.Equal(t, test.want, isResizable(workers))
			assert.Equal(t, test.want, workers.Spec.SuccessPolicy != nil)
		})
	}
}

func TestWhatCannotBeResizedInPlaceIsToldBeforeItStarts(t *testing.T) {
	jax := elastic().Rescale(mlv1.RescaleInPlace).Spec(func(s *mlv1.TrainingJobSpec) { s.Framework = mlv1.FrameworkJAX }).Obj()
	_, message := build.ElasticProblem(jax)
	assert.Equal(t, "InPlace needs framework pytorch, but spec.framework is jax: use Restart", message)

	queued := elastic().Rescale(mlv1.RescaleInPlace).Obj()
	queued.Labels = map[string]string{build.KueueQueueLabel: "research"}
	field, message := build.Check(queued)
	assert.Equal(t, "spec.elastic.rescalePolicy", field, "the webhook refuses it")
	assert.Contains(t, message, "InPlace does not go with a queue")
	d := plan(see(queued, nil))
	assert.Equal(t, mlv1.StatePending, d.status.State)
	assert.Equal(t, reasons.InvalidSpec, d.status.Reason)
	assert.Contains(t, waitingMessage(&d.status), message)

	for _, fits := range []*mlv1.TrainingJob{elastic().Obj(), elastic().Rescale(mlv1.RescaleInPlace).Obj(), elastic().Rescale(mlv1.RescaleRestart).Obj()} {
		_, message := build.ElasticProblem(fits)
		assert.Empty(t, message)
	}
}

func TestTheGangOfAnElasticJobIsTheLeastThatCanTrain(t *testing.T) {
	job := elastic().Workers(4).Elastic(2, 4).Obj()
	assert.Equal(t, int32(2), newPlanner(see(job, nil)).gangSize())
	assert.Equal(t, int32(2), newPlanner(see(job, builders.Workers(job).Obj())).gangSize())
	assert.Equal(t, int32(4), newPlanner(see(elastic().Workers(4).Rescale(mlv1.RescaleRestart).Obj(), nil)).gangSize())
}

func TestTheEnvironmentOfAnElasticWorker(t *testing.T) {
	set := map[string]string{}
	for _, variable := range build.Workers(elastic().Obj(), build.Settings{}, 0).Spec.Template.Spec.Containers[0].Env {
		set[variable.Name] = variable.Value
	}
	for name, value := range map[string]string{
		"PET_NNODES": "1:4", "PET_NPROC_PER_NODE": "1", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "uid-of-bert",
		"PET_RDZV_ENDPOINT": "bert-training-0.bert-headless:29500", "PET_RDZV_CONF": "last_call_timeout=10",
		"PET_MAX_RESTARTS": "10", "PET_MONITOR_INTERVAL": "1", "MASTER_ADDR": "bert-training-0.bert-headless",
	} {
		assert.Equal(t, value, set[name], name)
	}
	for _, name := range build.NotElastic {
		assert.NotContains(t, set, name)
	}
	assert.Contains(t, set, "PET_NODE_RANK")
}

func TestWhatIsToldOfElasticWorkers(t *testing.T) {
	at := func(state mlv1.State, reason string, total int32) *mlv1.TrainingJobStatus {
		return &mlv1.TrainingJobStatus{State: state, Reason: reason, Workers: &mlv1.WorkersStatus{Total: total}}
	}
	run := mlv1.StateRunning
	for name, test := range map[string]struct {
		before, after *mlv1.TrainingJobStatus
		want          []string
	}{
		"grows":             {at(run, "WorkersRunning", 2), at(run, "Rescaling", 4), []string{"Rescaling: from 2 to 4 workers, without a restart"}},
		"grown":             {at(run, "Rescaling", 4), at(run, "WorkersRunning", 4), []string{"Rescaled: all 4 workers run"}},
		"at once":           {at(run, "WorkersRunning", 2), at(run, "WorkersRunning", 1), []string{"Rescaled: from 2 to 1 workers, without a restart; all 1 workers run"}},
		"lost":              {at(run, "WorkersRunning", 2), at(run, "WorkerLost", 2), []string{"WorkerLost: WorkerLost"}},
		"still lost":        {at(run, "WorkerLost", 2), at(run, "WorkerLost", 2), nil},
		"rejoined":          {at(run, "WorkerLost", 2), at(run, "WorkersRunning", 2), []string{"WorkerRejoined: all 2 workers run again"}},
		"restarted instead": {at(run, "WorkersRunning", 2), at(mlv1.StateRestarting, "Rescaled", 4), nil},
		"nothing":           {at(run, "WorkersRunning", 2), at(run, "WorkersRunning", 2), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range elasticEvents(test.before, test.after) {
				got = append(got, event.Reason+": "+event.Note)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestAPIElasticWorkersAreResizedWithOneWrite(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(elastic())
	workers := c.workers(job, 0)
	pods := c.startPods(workers)
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))
	before := len(m.Written())

	for _, size := range []int32{4, 2} {
		patched := job.DeepCopy()
		patched.Spec.NumWorkers = size
		require.NoError(t, c.Patch(t.Context(), patched, client.MergeFrom(job)))
		job.Spec.NumWorkers = size
		eventually(t, "the new size of the Job", func() bool {
			now := c.workers(job, 0)
			return *now.Spec.Completions == size && *now.Spec.Parallelism == size && now.UID == workers.UID
		})
		if size == 4 {
			c.run(c.startPods(c.workers(job, 0))[2:]...)
		}
	}
	resizes := 0
	for _, write := range m.Written()[before:] {
		if write == "PATCH /apis/batch/v1/namespaces/"+c.namespace+"/jobs/bert-training" {
			resizes++
		}
	}
	assert.Equal(t, 2, resizes, "each change of size is one write")
	var now mlv1.TrainingJob
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), &now))
	assert.Zero(t, now.Status.RestartCount)
}

func elasticEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	var t teller
	t.workers(before, after)
	return t
}
