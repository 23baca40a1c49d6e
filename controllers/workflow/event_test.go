package workflow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestWhatAWorkflowCausedDoesNotStartIt(t *testing.T) {
	w := worldOf(stage("read")).triggered("event", "kind", "Pod", "reason", "Killing")
	w.workflow.Status.Run = 5
	about := func(name string) []*corev1.Event {
		return []*corev1.Event{{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: name, UID: "of a pod"},
		}}
	}
	own := jobName(w.workflow, 5, "read")
	for name, starts := range map[string]bool{
		own + "-0-0": false, jobName(w.workflow, 3, "read") + "-0-0": false, own: false, "anothers": true,
		jobName(w.workflow, 2, "read") + "-0-0": true, // so long ago that its pods have gone
	} {
		assert.Equal(t, starts, len(occurrences(about(name), w.workflow, nil)) > 0, name)
	}
}
