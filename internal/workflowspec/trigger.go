package workflowspec

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// Settings of triggers.
const (
	settingSchedule = "schedule"
	settingKind     = "kind"
	settingReason   = "reason"
)

// Schedule reads the cron expression of a trigger of type schedule.
func Schedule(trigger *aiplatformv1alpha1.Trigger, now time.Time) (cron.Schedule, error) {
	const field = "spec.trigger.config.schedule: "
	text := strings.TrimSpace(string(trigger.Config[settingSchedule]))
	if strings.Contains(text, "TZ=") {
		return nil, fmt.Errorf("%s%q names a time zone, but the times are in UTC: remove it and convert the hours", field, text)
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("%s%q is no cron expression (%w): write five fields, minute hour day month weekday, for example 0 3 * * *",
			field, text, err)
	}
	if schedule.Next(now.UTC()).IsZero() {
		return nil, fmt.Errorf("%s%q has no time to come: choose a day that exists", field, text)
	}
	return schedule, nil
}

// Event is the kind and the reason of the Kubernetes events that a trigger of type event waits for.
func Event(trigger *aiplatformv1alpha1.Trigger) (kind, reason string, err error) {
	kind, reason = string(trigger.Config[settingKind]), string(trigger.Config[settingReason])
	switch {
	case kind == "":
		return "", "", fmt.Errorf("spec.trigger.config.kind: is empty: name the kind of the object that the event is about, for example Pod")
	case reason == "":
		return "", "", fmt.Errorf("spec.trigger.config.reason: is empty: name the reason of the event, for example FailedScheduling")
	}
	return kind, reason, nil
}

// CheckTrigger says what is wrong with a trigger; nil when it can start its workflow.
func CheckTrigger(trigger *aiplatformv1alpha1.Trigger, now time.Time) *Problem {
	var err error
	switch trigger.Type {
	case aiplatformv1alpha1.TriggerSchedule:
		_, err = Schedule(trigger, now)
	case aiplatformv1alpha1.TriggerEvent:
		_, _, err = Event(trigger)
	}
	if err != nil {
		return &Problem{reasons.InvalidTrigger, err.Error()}
	}
	return nil
}
