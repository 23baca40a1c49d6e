package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// isInvalid says whether the proxy told that what was made for an object is invalid, which no other answer takes back. Nothing in this
// workload is invalid.
func isInvalid(reason, status string) bool {
	return reason == reasons.InvalidSpec && strings.Contains(status, toldInvalid)
}

// toldInvalid is what the proxy says of what it calls invalid.
const toldInvalid = "Invalid value: chaos"

// endOfTraining checks that a TrainingJob has succeeded only if all its programs did, and failed only for the limit that countsOfTraining
// holds against what happened.
func (l *workload) endOfTraining(job *mlv1.TrainingJob) {
	s, jobs := job.Status, l.watcher.jobsOf(job.UID)
	switch {
	case s.State == mlv1.StateFailed && s.Reason != reasons.BackoffLimitExceeded && !isInvalid(s.Reason, describe(job)):
		l.note("TrainingJob %s: nothing explains that it failed; %s", job.Name, describe(job))
	case s.State == mlv1.StateCompleted && len(jobs) == 0:
		l.note("TrainingJob %s: it is Completed, and had no Job; %s", job.Name, describe(job))
	case s.State == mlv1.StateCompleted:
		last := jobs[len(jobs)-1]
		for place := range ptr.Deref(last.Spec.Completions, 0) {
			if !l.nodes.history.hasSucceeded(attempt{owner: last.UID}, fmt.Sprint(place)) {
				l.note("TrainingJob %s: it is Completed, and worker %d of Job %s did not end with exit code 0; %s", job.Name, place, last.Name, describe(job))
			}
		}
	}
}

// endOfAIJob checks that an AIJob has succeeded only if all its programs did, was cancelled only by a user or its workflow, and failed only
// for the limit that countsOfAIJob holds against what happened.
func (l *workload) endOfAIJob(job *aiplatformv1alpha1.AIJob, workflows []aiplatformv1alpha1.AgentWorkflow) {
	switch s := job.Status; s.Phase {
	case aiplatformv1alpha1.AIJobSucceeded:
		for place := range members(job) {
			if !l.nodes.history.hasSucceeded(attempt{job.UID, fmt.Sprint(triesOf(job))}, fmt.Sprint(place)) {
				l.note("AIJob %s: it succeeded, and member %d of try %d did not end with exit code 0; %s", job.Name, place, triesOf(job), describe(job))
			}
		}
	case aiplatformv1alpha1.AIJobFailed:
		if !isInvalid(s.Reason, describe(job)) {
			l.note("AIJob %s: nothing explains that it failed; %s", job.Name, describe(job))
		}
	case aiplatformv1alpha1.AIJobCancelled:
		if !l.isCancelled(job.UID) && !isGivenUp(job, workflows) {
			l.note("AIJob %s: no user and no workflow cancelled it; %s", job.Name, describe(job))
		}
	}
}

func members(job *aiplatformv1alpha1.AIJob) int32 {
	if ptr.Deref(job.Spec.Gang.Enabled, false) {
		return max(job.Spec.Gang.MinMembers, 1)
	}
	return 1
}

// isCancelled says whether a user cancelled a job.
func (l *workload) isCancelled(job types.UID) bool {
	l.acting.Lock()
	defer l.acting.Unlock()
	return l.cancelled[job]
}

// isGivenUp says whether a job was made for a workflow that failed.
func isGivenUp(job *aiplatformv1alpha1.AIJob, workflows []aiplatformv1alpha1.AgentWorkflow) bool {
	return slices.ContainsFunc(workflows, func(w aiplatformv1alpha1.AgentWorkflow) bool {
		return job.Labels[aiplatformv1alpha1.LabelWorkflow] == w.Name && w.Status.Phase == aiplatformv1alpha1.WorkflowFailed
	})
}

// endOfWorkflow checks that a workflow ran once, and ended as the AIJobs of its stages did.
func (l *workload) endOfWorkflow(workflow *aiplatformv1alpha1.AgentWorkflow, jobs []aiplatformv1alpha1.AIJob) {
	s := workflow.Status
	succeeded, failed := 0, 0
	for i := range jobs {
		labels := jobs[i].Labels
		if labels[aiplatformv1alpha1.LabelWorkflow] != workflow.Name || labels[aiplatformv1alpha1.LabelWorkflowRun] != strconv.Itoa(int(s.Run)) {
			continue
		}
		switch jobs[i].Status.Phase {
		case aiplatformv1alpha1.AIJobSucceeded:
			succeeded++
		case aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter:
			failed++
		}
	}
	switch stages := len(workflow.Spec.Stages); {
	case s.Run != 1:
		l.note("AgentWorkflow %s: it is started once, and counts %d runs; %s", workflow.Name, s.Run, describe(workflow))
	case s.Phase == aiplatformv1alpha1.WorkflowSucceeded && succeeded != stages:
		l.note("AgentWorkflow %s: it succeeded, and %d of its %d stages did; %s", workflow.Name, succeeded, stages, describe(workflow))
	case s.Phase == aiplatformv1alpha1.WorkflowFailed && failed == 0 && !strings.Contains(describe(workflow), toldInvalid):
		l.note("AgentWorkflow %s: it failed, and no AIJob of its stages did; %s", workflow.Name, describe(workflow))
	}
}

// endOfSpot checks that a SpotInstanceJob has succeeded only if one of its replicas did, and failed only if something befell each of them.
func (l *workload) endOfSpot(job *spotv1alpha1.SpotInstanceJob) {
	succeeded, troubled := false, map[string]bool{}
	for _, replica := range l.watcher.jobsOf(job.UID) {
		of := attempt{owner: replica.UID}
		succeeded = succeeded || l.nodes.history.anySucceeded(of)
		if l.nodes.history.problems(of) > 0 {
			troubled[replica.Labels[spotv1alpha1.LabelReplica]] = true
		}
	}
	switch {
	case job.Status.Phase == spotv1alpha1.JobSucceeded && !succeeded:
		l.note("SpotInstanceJob %s: it succeeded, and no program of its replicas did; %s", job.Name, describe(job))
	case job.Status.Phase == spotv1alpha1.JobFailed && len(troubled) < int(ptr.Deref(job.Spec.Replicas, 0)):
		l.note("SpotInstanceJob %s: nothing explains that all its replicas failed; %s", job.Name, describe(job))
	}
}
