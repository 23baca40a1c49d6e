// Package reporting writes what controllers report of their objects: the status itself, events, and a line in the log for each transition.
package reporting

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

// Event is a transition to tell once the status is written.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is one of package reasons.
	Reason string
	// Action is what the operator did, or what failed, in one word.
	Action string
	// Note is the message.
	Note string
}

// Normal returns an event of type Normal.
func Normal(reason, action, format string, args ...any) Event {
	return Event{corev1.EventTypeNormal, reason, action, sprintf(format, args)}
}

// Warning returns an event of type Warning.
func Warning(reason, action, format string, args ...any) Event {
	return Event{corev1.EventTypeWarning, reason, action, sprintf(format, args)}
}

func sprintf(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// Patch writes the status of an object. The optimistic lock makes sure that it was decided from the newest status: a restart must not be
// counted twice. The error of a conflict or of a missing object can be recognized as such.
func Patch(ctx context.Context, c client.StatusClient, before, after client.Object) error {
	lock := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, after, lock, child.FieldOwner); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// Transition is what the log says of a status that was written.
type Transition struct {
	// From and To are the phase or state before and after.
	From, To string
	// Before and After are the conditions.
	Before, After []metav1.Condition
}

// Tell emits events and logs the transition: a line for each event, or one for a change of the phase or of a condition's status without
// an event. Lines of figures alone are at V(1).
func Tell(ctx context.Context, recorder events.EventRecorder, object client.Object, t Transition, list ...Event) {
	logger := log.FromContext(ctx)
	if t.From != t.To {
		logger = logger.WithValues("from", t.From, "to", t.To)
	}
	for _, e := range list {
		recorder.Eventf(object, nil, e.Type, e.Reason, e.Action, "%s", e.Note)
		logger.Info(e.Reason, "message", e.Note)
	}
	if len(list) > 0 {
		return
	}
	var changed []any
	for _, is := range Changed(t.Before, t.After) {
		changed = append(changed, "condition"+is.Type, fmt.Sprintf("%s (%s: %s)", is.Status, is.Reason, is.Message))
	}
	if t.From == t.To && len(changed) == 0 {
		logger.V(1).Info("Wrote status")
		return
	}
	logger.Info("Status changed", changed...)
}
