package trainingjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// conditionsOf are what conditions must be in each state. A condition that is not named may be anything that its own
// meaning allows; one that is "never" True may be missing.
var conditionsOf = map[mlv1.State]map[string]string{
	mlv1.StatePending: {
		"Initialized": "False or missing", "Running": "never True", "Suspended": "never True", "Complete": "missing", "Failed": "missing",
	},
	mlv1.StateInitializing: {
		"Admitted": "True", "Initialized": "False", "Running": "False", "Suspended": "never True", "Complete": "missing", "Failed": "missing",
	},
	mlv1.StateRunning: {
		"Admitted": "True", "Initialized": "True", "Running": "True", "Suspended": "never True", "Restarting": "never True",
		"Complete": "missing", "Failed": "missing",
	},
	mlv1.StateRestarting: {
		"Admitted": "True", "Initialized": "False", "Running": "False", "Restarting": "True", "Suspended": "never True",
		"Complete": "missing", "Failed": "missing",
	},
	mlv1.StateSuspended: {
		"Admitted": "True", "Initialized": "False", "Running": "False", "Suspended": "True", "Restarting": "never True",
		"Complete": "missing", "Failed": "missing",
	},
	mlv1.StateCompleted: {
		"Admitted": "True", "Running": "False", "Complete": "True", "Suspended": "never True", "Restarting": "never True", "Failed": "missing",
	},
	mlv1.StateFailed: {
		"Running": "False", "Failed": "True", "Suspended": "never True", "Restarting": "never True", "Complete": "missing",
	},
}

// TestEveryStatusThatCanBeReachedIsConsistent walks from a new job through everything that can be observed of it next,
// several steps deep, and looks at every status on the way.
func TestEveryStatusThatCanBeReachedIsConsistent(t *testing.T) {
	const depth = 4
	seen := map[string]bool{}
	level := []*mlv1.TrainingJob{builders.TrainingJob("bert").Workers(2).Elastic(1, 4).Claim("shared").BackoffLimit(1).Deadline(3600).Obj()}
	plans := 0
	for step := range depth {
		var next []*mlv1.TrainingJob
		for _, job := range level {
			for title, o := range worlds(job, time.Duration(step)*time.Minute) {
				before := o.job.DeepCopy()

				d := plan(o)

				plans++
				title = fmt.Sprintf("from %s, %s", job.Status.State, title)
				if !equality.Semantic.DeepEqual(before, o.job) {
					t.Errorf("%s: what was observed was changed: %s", title, cmp.Diff(before, o.job))
				}
				if d.more { // after the first of two stages nothing is reported
					continue
				}
				after := o.job.DeepCopy()
				after.Status = d.status
				if found := flaws(&d.status); len(found) > 0 {
					t.Errorf("%s: %s, but %s", title, d.status.State, strings.Join(found, ", and "))
				}
				o.job = after
				if again := plan(o).status; !equality.Semantic.DeepEqual(d.status, again) {
					t.Errorf("%s: a second look changes the status: %s", title, cmp.Diff(d.status, again))
				}
				if key := essential(after); !seen[key] {
					seen[key] = true
					next = append(next, after)
				}
				if t.Failed() {
					t.Logf("%s became %+v", title, outlineOf(d))
					return
				}
			}
		}
		level = next
	}
	t.Logf("%d plans, %d different statuses", plans, len(seen))
	assert.Greater(t, len(seen), 100, "the walk reaches little")
}

// worlds are the things that can be observed of a job at a time.
func worlds(of *mlv1.TrainingJob, passed time.Duration) map[string]observed {
	all := map[string]observed{}
	for wish, change := range map[string]func(*mlv1.TrainingJobSpec){
		"":            func(*mlv1.TrainingJobSpec) {},
		", suspended": func(s *mlv1.TrainingJobSpec) { s.Suspend = ptr.To(!ptr.Deref(s.Suspend, false)) },
		", rescaled":  func(s *mlv1.TrainingJobSpec) { s.NumWorkers = 5 - s.NumWorkers },
	} {
		job := of.DeepCopy()
		change(&job.Spec)
		if wish != "" {
			job.Generation++
		}
		workers := builders.Workers(of).Attempt(int(job.Status.RestartCount)).Obj()
		earlier := builders.Workers(of).Attempt(int(job.Status.RestartCount) - 1).Obj()
		pod := func(replica int) *builders.PodBuilder { return builders.Pod(workers, replica) }
		each := func(build func(replica int) *corev1.Pod) (pods []*corev1.Pod) {
			for replica := range int(of.Spec.NumWorkers) {
				pods = append(pods, build(replica))
			}
			return pods
		}
		missing := see(job, nil)
		missing.missingClaim = "shared"
		for title, o := range map[string]observed{
			"no Job":                       see(job, nil),
			"no Job and no claim":          missing,
			"no Job and a pod that ends":   see(job, nil, pod(0).Running().Deleting(time.Minute).Obj()),
			"no Job and an orphan":         see(job, nil, pod(0).Running().Orphaned().Obj()),
			"a Job":                        see(job, workers),
			"a Job that is being deleted":  see(job, builders.Workers(of).Attempt(int(job.Status.RestartCount)).Deleting().Obj()),
			"the Job of an attempt before": see(job, earlier, builders.Pod(earlier, 0).Failed(1).Obj()),
			"pods that start":              see(job, workers, each(func(r int) *corev1.Pod { return pod(r).Obj() })...),
			"pods that run":                see(job, workers, each(func(r int) *corev1.Pod { return pod(r).Running().Obj() })...),
			"pods that succeeded":          see(job, workers, each(func(r int) *corev1.Pod { return pod(r).Succeeded("").Obj() })...),
			"a pod that fits on no node":   see(job, workers, pod(0).Unschedulable("full").Obj()),
			"a pod that failed":            see(job, workers, pod(0).Failed(1).Obj()),
			"a pod that failed finally":    see(job, workers, pod(0).Failed(64).Obj()),
			"a pod that was lost":          see(job, workers, pod(0).Failed(143).Disrupted("Preempted", "").Obj()),
			"pods that run long":           see(job, workers, each(func(r int) *corev1.Pod { return pod(r).Running().Obj() })...).after(2 * time.Hour),
		} {
			if o.workers == nil || build.AttemptOf(o.workers) >= 0 {
				all[title+wish] = o.after(passed)
			}
		}
	}
	return all
}

// flaws are what is inconsistent in a status.
func flaws(status *mlv1.TrainingJobStatus) (found []string) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	must(status.Phase == phases[status.State], "phase is %s", status.Phase)
	must(status.Reason != "" || status.State == mlv1.StatePending, "there is no reason")
	got := conditions{}
	for _, condition := range status.Conditions {
		got[condition.Type] = string(condition.Status)
		must(condition.Reason != "" && condition.Message != "", "condition %s does not say why", condition.Type)
	}
	for kind, rule := range conditionsOf[status.State] {
		is := got[kind]
		switch rule {
		case "missing":
			must(is == "", "condition %s is %s", kind, is)
		case "never True":
			must(is != "True", "condition %s is True", kind)
		case "False or missing":
			must(is == "" || is == "False", "condition %s is %s", kind, is)
		default:
			must(is == rule, "condition %s is %q", kind, is)
		}
	}
	ended := status.State == mlv1.StateCompleted || status.State == mlv1.StateFailed
	must(ended == (status.CompletionTime != nil), "completionTime is %v", status.CompletionTime)
	ran := status.State == mlv1.StateRunning || status.State == mlv1.StateCompleted
	must(!ran || status.StartTime != nil, "there is no startTime")
	wrong := status.State == mlv1.StateFailed || status.State == mlv1.StateRestarting
	must(!wrong || status.FailureReason != "", "there is no failureReason")
	must(status.RestartCount >= status.DisruptionCount, "there are more disruptions than restarts")
	must(status.RestartCount-status.DisruptionCount <= 1, "there are more restarts than backoffLimit 1 allows")
	return found
}

// essential is what of a job decides about what comes next.
func essential(job *mlv1.TrainingJob) string {
	s := &job.Status
	set := conditions{}
	for _, condition := range s.Conditions {
		set[condition.Type] = string(condition.Status)
	}
	return fmt.Sprint(job.Spec.NumWorkers, ptr.Deref(job.Spec.Suspend, false), s.State, s.Reason, set, resumedAt(s).IsZero(),
		min(s.RestartCount, 2), min(s.DisruptionCount, 1), s.StartTime != nil)
}

func TestReportWritesOnlyMinorChangesLate(t *testing.T) {
	base := plan(see(builders.TrainingJob("bert").Workers(2).Obj(), builders.Workers(builders.TrainingJob("bert").Workers(2).Obj()).Obj())).status
	tests := map[string]struct {
		change func(*mlv1.TrainingJobStatus)
		minor  bool
	}{
		"the number of active workers": {func(s *mlv1.TrainingJobStatus) { s.Workers.Active++ }, true},
		"the wording of a condition":   {func(s *mlv1.TrainingJobStatus) { s.Conditions[0].Message = "other" }, true},
		"the state":                    {func(s *mlv1.TrainingJobStatus) { s.State = mlv1.StateRunning }, false},
		"the reason of a condition":    {func(s *mlv1.TrainingJobStatus) { s.Conditions[0].Reason = "Other" }, false},
		"the number of workers":        {func(s *mlv1.TrainingJobStatus) { s.Workers.Total++ }, false},
		"a figure":                     {func(s *mlv1.TrainingJobStatus) { s.Metrics = map[string]float64{"loss": 1} }, false},
		"the generation":               {func(s *mlv1.TrainingJobStatus) { s.ObservedGeneration++ }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := base.DeepCopy()
			test.change(after)
			assert.Equal(t, test.minor, onlyMinor(&base, after))
		})
	}
}
