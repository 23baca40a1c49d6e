package trainingjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// story is what the log says of one job at the level info.
type story struct {
	mu    sync.Mutex
	lines []string
}

// add a line of the log: what happened, from which state to which, and the first words of the message.
func (s *story) add(job, text string) {
	var line map[string]any
	if err := json.Unmarshal([]byte(text), &line); err != nil || line["name"] != job {
		return
	}
	told := fmt.Sprint(line["msg"])
	if child, ok := line["child"]; ok {
		told += fmt.Sprintf(" %s", child)
	}
	if line["from"] != line["to"] {
		told += fmt.Sprintf(" [%s -> %s]", line["from"], line["to"])
	}
	if message, ok := line["message"]; ok {
		told += fmt.Sprintf(": %s", message)
	}
	for _, key := range slices.Sorted(maps.Keys(line)) {
		if kind, ok := strings.CutPrefix(key, "condition"); ok {
			told += fmt.Sprintf("; %s %s", kind, line[key])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, told)
}

func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func TestAPITheLogTellsTheStoryOfAPreemptedTraining(t *testing.T) {
	c, told := newAdmittingCluster(t), &story{}
	c.log = funcr.NewJSON(func(text string) { told.add("low", text) }, funcr.Options{})
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Value: 90}
	require.NoError(t, c.Create(t.Context(), class))
	c.queue(func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.PreemptionPolicy = aiplatformv1alpha1.PreemptLowerPriority
	})
	c.roomFor("a", "2")
	c.start(nil)
	low := c.submit(c.queued("low").Checkpoints())
	c.run(c.startPods(c.workers(low, 0))...)
	c.await(low, "running", state(mlv1.StateRunning))
	high := c.submit(c.queued("high").Spec(func(s *mlv1.TrainingJobSpec) { s.Scheduling.Priority = class.Name }))
	pods := c.startPods(c.workers(high, 0))
	c.run(pods...)
	c.await(high, "running", state(mlv1.StateRunning))
	c.end(0, "", pods...)
	c.await(high, "completed", state(mlv1.StateCompleted))
	pods = c.startPods(c.workers(low, 0))
	c.run(pods...)
	c.await(low, "running again", state(mlv1.StateRunning))
	c.end(0, "", pods...)
	// A status is logged after it is written.
	eventually(t, "the last line", func() bool { return strings.Contains(told.String(), "Completed [") })

	preempted := "preempted by TrainingJob " + c.namespace + "/high (priority 90)"
	text := told.String()
	rest := text
	for _, next := range []string{
		"Queued: waiting for AIJobQueue", "Initializing [Pending -> Initializing]", "Created Job low-training", "Running [Initializing -> Running]",
		"Suspended False (Preempted: " + preempted + ")", "Deleted Job low-training",
		"Suspended [Running -> Suspended]: evicted from the queue; waiting for readmission: " + preempted,
		"Initializing [Suspended -> Initializing]", "Created Job low-training", "Running [Initializing -> Running]", "Completed [Running -> Completed]",
	} {
		_, after, found := strings.Cut(rest, next)
		require.True(t, found, "%q is not in the log, or not in its place:\n%s", next, text)
		rest = after
	}
	assert.LessOrEqual(t, strings.Count(text, "\n"), 20, "there is no line for each reconcile:\n%s", text)
}
