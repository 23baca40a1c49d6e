package reporting

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// longestNote is what the API takes as the note of an event, in bytes.
const longestNote = 1024

// NewRecorder returns a recorder that writes events to the manager's API server until the manager stops. Their notes carry no secrets and
// are cut to the length that the API takes. Events of a namespace that is being deleted are dropped: the API server takes none there.
func NewRecorder(ctx context.Context, mgr manager.Manager, component string) (events.EventRecorder, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up the client of events: %w", err)
	}
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: client}})
	// Those of the last reconciliations are still written while the manager stops.
	if err := broadcaster.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("start to record events: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		broadcaster.Shutdown()
		return nil
	}))
	return fitting{broadcaster.NewRecorder(mgr.GetScheme(), component)}, err
}

// sink is where events are written to.
type sink struct{ events.EventSink }

// Create implements events.EventSink. What goes with its namespace has no reader left.
func (s sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return event, nil
	}
	return created, err
}

// fitting is a recorder that makes notes fit to be read and written.
type fitting struct{ next events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r fitting) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.next.Eventf(regarding, related, kind, reason, action, "%s", shorten(redact.Text(fmt.Sprintf(note, args...))))
}

// shorten cuts words out of the middle of a text that is too long for a note: it begins with what happened, and ends with the cause.
func shorten(text string) string {
	const gap = " ... "
	if len(text) <= longestNote {
		return text
	}
	const room = longestNote - len(gap)
	head, tail := text[:room/3], text[len(text)-(room-room/3):]
	if at := strings.LastIndexFunc(head, unicode.IsSpace); at > 0 {
		head = head[:at]
	}
	if at := strings.IndexFunc(tail, unicode.IsSpace); at >= 0 {
		tail = tail[at:]
	}
	return strings.ToValidUTF8(strings.TrimSpace(head)+gap+strings.TrimSpace(tail), "")
}
