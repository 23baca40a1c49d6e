package workflow

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// newest is when the newest of the events happened that the workflow did not cause itself, or since, when that is later.
func newest(
	since time.Time, known []corev1.Event, workflow *aiplatformv1alpha1.AgentWorkflow, jobs map[string]*aiplatformv1alpha1.AIJob,
) time.Time {
	own := map[types.UID]bool{workflow.UID: true}
	for _, job := range jobs {
		own[job.UID] = true
	}
	names := ownNames(workflow)
	for i := range known {
		about := &known[i].InvolvedObject
		if at := happened(&known[i]); at.After(since) && !own[about.UID] && !isOwn(names, about.Name) {
			since = at
		}
	}
	return since
}

// ownNames are those of the AIJobs of the last runs, with which the names of their pods begin. The AIJobs may be gone by now.
func ownNames(workflow *aiplatformv1alpha1.AgentWorkflow) (names []string) {
	for run := max(1, workflow.Status.Run-runsKept+1); run <= workflow.Status.Run; run++ {
		for i := range workflow.Spec.Stages {
			names = append(names, jobName(workflow, run, workflow.Spec.Stages[i].Name))
		}
	}
	return names
}

func isOwn(names []string, name string) bool {
	return slices.ContainsFunc(names, func(job string) bool { return name == job || strings.HasPrefix(name, job+"-") })
}
