package workflow

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func noonPlus(hours, minutes int) time.Time {
	return builders.Noon.Add(time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute)
}

// finish ends a workflow of the one stage read.
func (w *world) finish() []string {
	w.yields("read", "out", "x", "score", "1")
	return w.settle()
}

func TestAManualWorkflowStartsOnce(t *testing.T) {
	w := worldOf(stage("read"))
	w.settle()
	w.finish()
	w.workflow.Generation++
	w.workflow.Spec.Stages[0].Inputs = map[string]aiplatformv1alpha1.ParameterValue{"text": "other"}
	assert.Empty(t, w.at(24*time.Hour).settle())
	assert.Equal(t, int32(1), w.workflow.Status.Run)
}

func TestASchedule(t *testing.T) {
	w := worldOf(stage("read")).triggered("schedule", "schedule", "30 * * * *")
	assert.Empty(t, w.settle())
	assert.Equal(t, noonPlus(0, 30), w.workflow.Status.NextStartTime.Time)
	assert.Equal(t, "starts at 30 * * * * (UTC)", w.workflow.Status.Message)
	assert.Equal(t, 30*time.Minute, w.step().again)
	assert.Equal(t, time.Minute, w.at(29*time.Minute).step().again)

	w.at(30 * time.Minute)
	assert.Equal(t, []string{"create read"}, w.settle())
	assert.Equal(t, noonPlus(1, 30), w.workflow.Status.NextStartTime.Time)
	assert.Nil(t, w.workflow.Status.LastSkippedTime)

	// It still runs at the next time.
	w.at(90 * time.Minute)
	assert.Empty(t, w.settle())
	assert.Equal(t, noonPlus(1, 30), w.workflow.Status.LastSkippedTime.Time)
	assert.Equal(t, noonPlus(2, 30), w.workflow.Status.NextStartTime.Time)
	assert.Empty(t, w.finish(), "a skipped time is not made up for")
	assert.Equal(t, "1 of 1 stages succeeded", w.workflow.Status.Message)

	// The operator was away for a day.
	w.at(26 * time.Hour)
	assert.Equal(t, []string{"create read"}, w.settle(), "once for all the times that were missed")
	assert.Equal(t, int32(2), w.workflow.Status.Run)
	assert.Equal(t, noonPlus(26, 30), w.workflow.Status.NextStartTime.Time)
	assert.Nil(t, w.workflow.Status.CompletionTime)
	assert.Equal(t, map[string]string{"Ready": "True Ready"}, reasonsOf(w.workflow.Status), "what the last run came to is gone")
	assert.Empty(t, w.workflow.Status.Results)
	w.finish()
	assert.Equal(t, int32(2), w.workflow.Status.Run)
}

func TestAChangedScheduleCountsFromTheChange(t *testing.T) {
	w := worldOf(stage("read")).triggered("schedule", "schedule", "0 18 * * *")
	w.settle()
	w.at(2*time.Hour).triggered("schedule", "schedule", "0 13 * * *").workflow.Generation++
	assert.Empty(t, w.settle(), "13:00 was before it was asked for")
	assert.Equal(t, noonPlus(25, 0), w.workflow.Status.NextStartTime.Time)

	w.triggered("manual").workflow.Generation++
	w.workflow.Spec.Trigger.Config = nil
	assert.Equal(t, []string{"create read"}, w.settle(), "it has never started")
	assert.Nil(t, w.workflow.Status.NextStartTime)
}

func TestAWrongScheduleSaysSo(t *testing.T) {
	w := worldOf(stage("read")).triggered("schedule", "schedule", "at noon")
	assert.Empty(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "False InvalidTrigger"}, reasonsOf(w.workflow.Status))
	assert.Contains(t, w.workflow.Status.Message, `spec.trigger.config.schedule: "at noon" is no cron expression`)
	assert.Nil(t, w.workflow.Status.NextStartTime)
}

func TestATimeThatComesWithAMistakeStartsOnceItIsMended(t *testing.T) {
	w := worldOf(stage("read")).triggered("schedule", "schedule", "30 * * * *")
	agent := w.agents["reader"]
	w.settle()
	delete(w.agents, "reader")
	assert.Empty(t, w.at(100*time.Minute).settle())
	assert.Zero(t, w.step().again, "there is no need to look before the Agent comes")
	w.agents["reader"] = agent
	assert.Equal(t, []string{"create read"}, w.settle())
	assert.Equal(t, noonPlus(2, 30), w.workflow.Status.NextStartTime.Time)
}

// came is an event that the API server got when it happened.
func came(version int, at time.Time) occurrence { return occurrence{strconv.Itoa(version), at, at} }

func TestAnEventOfAClockThatIsAheadHidesNoOther(t *testing.T) {
	w := worldOf(stage("read")).triggered("event", "kind", "Pod", "reason", "Killing")
	w.settle()
	ahead := occurrence{"5", noonPlus(0, 1), noonPlus(9, 0)}
	w.events = []occurrence{ahead}
	assert.Equal(t, []string{"create read"}, w.at(time.Minute).settle())
	w.finish()

	w.events = append(w.events, came(12, noonPlus(0, 2)))
	assert.Equal(t, []string{"create read"}, w.at(2*time.Minute).settle())
	w.finish()
	assert.Empty(t, w.settle(), "each starts it once")

	again := occurrence{"13", noonPlus(0, 3), noonPlus(9, 0)} // the first comes again, and its clock has not moved
	w.events[0] = again
	assert.Equal(t, []string{"create read"}, w.at(3*time.Minute).settle())
}

func TestWhichEventsAreNew(t *testing.T) {
	created := builders.Noon
	seen := metav1.NewMicroTime(noonPlus(1, 0))
	for name, test := range map[string]struct {
		event  occurrence
		status aiplatformv1alpha1.AgentWorkflowStatus
		isNew  bool
	}{
		"in the second of the creation":                      {event: occurrence{"1", created, created.Add(-time.Second / 2)}, isNew: true},
		"of a clock that is behind":                          {event: occurrence{"1", created.Add(time.Second), created.Add(-30 * time.Second)}, isNew: true},
		"from before the creation":                           {event: occurrence{"1", created.Add(-time.Second), created.Add(-time.Second)}},
		"from before the creation, of a clock that is ahead": {event: occurrence{"1", created.Add(-time.Second), noonPlus(5, 0)}},
		"of long ago that is told only now":                  {event: occurrence{"1", created.Add(time.Second), created.Add(-time.Hour)}},
		"after the last one":                                 {event: occurrence{"10", created, created}, status: aiplatformv1alpha1.AgentWorkflowStatus{LastEventVersion: "9"}, isNew: true},
		"the last one":                                       {event: occurrence{"9", created, created}, status: aiplatformv1alpha1.AgentWorkflowStatus{LastEventVersion: "9"}},
		"after the last one of 0.3":                          {event: occurrence{"10", created, noonPlus(1, 1)}, status: aiplatformv1alpha1.AgentWorkflowStatus{LastEventTime: &seen}, isNew: true},
		"the last one of 0.3":                                {event: occurrence{"10", created, noonPlus(1, 0)}, status: aiplatformv1alpha1.AgentWorkflowStatus{LastEventTime: &seen}},
	} {
		t.Run(name, func(t *testing.T) {
			workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}, Status: test.status}
			assert.Equal(t, test.isNew, newest([]occurrence{test.event}, workflow) != nil)
		})
	}
}

func TestEvents(t *testing.T) {
	w := worldOf(stage("read")).triggered("event", "kind", "Pod", "reason", "Killing")
	w.events = []occurrence{came(1, builders.Noon.Add(-time.Minute))}
	assert.Empty(t, w.settle(), "an event from before the workflow was created")
	assert.Equal(t, "waits for an event Killing of kind Pod", w.workflow.Status.Message)

	w.events = append(w.events, came(2, noonPlus(0, 5)))
	assert.Equal(t, []string{"create read"}, w.at(5*time.Minute).settle())
	assert.Equal(t, noonPlus(0, 5), w.workflow.Status.LastEventTime.Time)

	for i := range 100 {
		w.events = append(w.events, came(3+i, noonPlus(0, 6+i)))
		before := w.workflow.Status
		w.step()
		assert.Equal(t, before, w.workflow.Status, "events that come while it runs cost no writes")
	}
	assert.Empty(t, w.finish(), "and start nothing")
	assert.Equal(t, noonPlus(0, 105), w.workflow.Status.LastEventTime.Time)
	assert.Equal(t, noonPlus(0, 105), w.workflow.Status.LastSkippedTime.Time)

	w.events = append(w.events, came(1000, noonPlus(3, 0)))
	assert.Equal(t, []string{"create read"}, w.at(3*time.Hour).settle())
	assert.Equal(t, int32(2), w.workflow.Status.Run)
}

func TestJobsOfLongAgoAreRemoved(t *testing.T) {
	w := worldOf(stage("read")).triggered("event", "kind", "Pod", "reason", "Killing")
	var done [][]string
	for i := range 5 {
		w.events = []occurrence{came(i+1, noonPlus(i+1, 0))}
		done = append(done, w.at(time.Duration(i+1)*time.Hour).settle())
		w.finish()
	}
	assert.Equal(t, [][]string{
		{"create read"}, {"create read"}, {"create read"},
		{"remove read of run 1", "create read"}, {"remove read of run 2", "create read"},
	}, done)
	assert.Len(t, w.jobs, 3)
}
