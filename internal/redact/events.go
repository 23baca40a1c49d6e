package redact

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Events returns a recorder that takes secrets out of the notes of the events that it passes on.
func Events(recorder events.EventRecorder) events.EventRecorder {
	return &eventRecorder{recorder}
}

type eventRecorder struct{ next events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r *eventRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.next.Eventf(regarding, related, kind, reason, action, "%s", Text(fmt.Sprintf(note, args...)))
}
