package runner

import (
	"encoding/json"
	"fmt"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// phaseOf is what the phase of an AIJob that has not ended means for its job, whose phase was last reported as told; empty: nothing new.
func phaseOf(aijob *aiplatformv1alpha1.AIJob, told jobs.Status) jobs.Status {
	phase := told
	switch aijob.Status.Phase {
	case aiplatformv1alpha1.AIJobScheduled:
		phase = jobs.Scheduled
	case aiplatformv1alpha1.AIJobRunning:
		phase = jobs.Running
	case aiplatformv1alpha1.AIJobRetrying:
		phase = jobs.Retrying
	case aiplatformv1alpha1.AIJobQueued:
		// It waits again after it lost its place.
		if told == jobs.Running || told == jobs.Scheduled {
			phase = jobs.Retrying
		}
	}
	if phase == told {
		return ""
	}
	return phase
}

// ended says whether an AIJob is in a phase that it does not leave by itself.
func ended(aijob *aiplatformv1alpha1.AIJob) bool {
	switch aijob.Status.Phase {
	case aiplatformv1alpha1.AIJobSucceeded, aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter, aiplatformv1alpha1.AIJobCancelled:
		return true
	}
	return false
}

// resultOf are the outputs as an object.
func resultOf(aijob *aiplatformv1alpha1.AIJob) json.RawMessage {
	if len(aijob.Status.Outputs) == 0 {
		return json.RawMessage("{}")
	}
	result, err := json.Marshal(aijob.Status.Outputs)
	if err != nil {
		panic(err) // a map of strings can be written
	}
	return result
}

func messageOf(aijob *aiplatformv1alpha1.AIJob) string {
	status := aijob.Status
	switch {
	case status.Message != "":
		return status.Message
	case status.ExitCode != nil:
		return fmt.Sprintf("the container ended with exit code %d", *status.ExitCode)
	case status.Reason != "":
		return status.Reason
	}
	return fmt.Sprintf("AIJob %s is %s", aijob.Name, status.Phase)
}
