package workflow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// triggers watches the events that workflows wait for, and no others: there is one watch for each namespace, kind and
// reason, as long as a workflow needs it.
type triggers struct {
	ctx     context.Context
	core    rest.Interface
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	watches map[awaited]eventWatch
	wants   map[types.NamespacedName]awaited
}

// awaited is what a workflow waits for.
type awaited struct{ namespace, kind, reason string }

type eventWatch struct {
	events   toolscache.Store
	isSynced toolscache.InformerSynced
	stop     context.CancelFunc
}

func newTriggers(ctx context.Context, mgr ctrl.Manager) (*triggers, error) {
	core, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("Event"), false, false, mgr.GetConfig(),
		serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the client that watches events: %w", err)
	}
	return &triggers{ctx: ctx, core: core, watches: map[awaited]eventWatch{}, wants: map[types.NamespacedName]awaited{}}, nil
}

// start takes the queue of the controller.
func (t *triggers) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = queue
	return nil
}

func (t *triggers) forget(workflow types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(workflow)
}

func (t *triggers) release(workflow types.NamespacedName) {
	a, ok := t.wants[workflow]
	if !ok {
		return
	}
	delete(t.wants, workflow)
	if !slices.Contains(slices.Collect(maps.Values(t.wants)), a) {
		t.watches[a].stop()
		delete(t.watches, a)
	}
}

// want has a workflow woken by the events that it waits for from now on, and returns those that are known.
func (t *triggers) want(ctx context.Context, workflow types.NamespacedName, a awaited) (known []*corev1.Event, err error) {
	watch := t.watch(workflow, a)
	if !toolscache.WaitForCacheSync(ctx.Done(), watch.isSynced) {
		return nil, fmt.Errorf("watch the events %s of kind %s: %w", a.reason, a.kind, ctx.Err())
	}
	for _, event := range watch.events.List() {
		known = append(known, event.(*corev1.Event))
	}
	return known, nil
}

func (t *triggers) watch(workflow types.NamespacedName, a awaited) eventWatch {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, ok := t.wants[workflow]; ok && before != a {
		t.release(workflow)
	}
	t.wants[workflow] = a
	watch, ok := t.watches[a]
	if ok {
		return watch
	}
	store, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(t.core, "events", a.namespace,
			fields.SelectorFromSet(fields.Set{"involvedObject.kind": a.kind, "reason": a.reason})),
		ObjectType: &corev1.Event{}, Transform: bareEvent,
		Handler: toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { t.wake(a) }, UpdateFunc: func(_, _ any) { t.wake(a) }},
	})
	ctx, stop := context.WithCancel(t.ctx) //nolint:gosec // the watch keeps stop, and ends by it
	go informer.RunWithContext(ctx)
	watch = eventWatch{store, informer.HasSynced, stop}
	t.watches[a] = watch
	return watch
}

// wake enqueues the workflows that wait for an event that came.
func (t *triggers) wake(a awaited) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for workflow, waits := range t.wants {
		if waits == a && t.queue != nil {
			t.queue.Add(reconcile.Request{NamespacedName: workflow})
		}
	}
}

// occurrence is an event that came.
type occurrence struct {
	// version is the event's resourceVersion, which grows with each occurrence. No clock does so surely.
	version string
	// written is when the API server got it, by its clock; happened is what the reporter says, by another.
	written, happened time.Time
}

// occurrences are those of the events that the workflow did not cause itself.
func occurrences(
	known []*corev1.Event, workflow *aiplatformv1alpha1.AgentWorkflow, jobs map[string]*aiplatformv1alpha1.AIJob,
) (list []occurrence) {
	own := map[types.UID]bool{workflow.UID: true}
	for _, job := range jobs {
		own[job.UID] = true
	}
	names := ownNames(workflow)
	for _, event := range known {
		about := &event.InvolvedObject
		if !own[about.UID] && !slices.ContainsFunc(names, func(job string) bool {
			return about.Name == job || strings.HasPrefix(about.Name, job+"-")
		}) {
			list = append(list, occurrence{event.ResourceVersion, written(event), happened(event)})
		}
	}
	return list
}

// clockSlack is how far the clock of a reporter may be behind that of the API server.
const clockSlack = time.Minute

// newest is the newest of the events that came after the last one that was seen, or after the workflow was created; nil for none.
func newest(events []occurrence, workflow *aiplatformv1alpha1.AgentWorkflow) *occurrence {
	seen, last, created := workflow.Status.LastEventVersion, workflow.Status.LastEventTime, workflow.CreationTimestamp.Time
	var found *occurrence
	for i := range events {
		is := &events[i]
		isNew := !is.written.Before(created) && is.happened.After(created.Add(-clockSlack))
		switch {
		case seen != "":
			isNew = isLater(is.version, seen)
		case last != nil: // version 0.3 wrote no version
			isNew = is.happened.After(last.Time)
		}
		if isNew && (found == nil || isLater(is.version, found.version)) {
			found = is
		}
	}
	return found
}

// isLater compares the resourceVersions of two events.
func isLater(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
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

// written is when the API server last got an event.
func written(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, by := range e.ManagedFields {
		if by.Time != nil && by.Time.After(last) {
			last = by.Time.Time
		}
	}
	return last
}

// happened is when an event last came, as its reporter says.
func happened(e *corev1.Event) time.Time {
	series := ptr.Deref(e.Series, corev1.EventSeries{})
	told := []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, series.LastObservedTime.Time}
	if last := slices.MaxFunc(told, time.Time.Compare); !last.IsZero() {
		return last
	}
	return written(e)
}

// bareEvent strips an event, before it enters the cache, of all that is not read. That it was written last stands for its creation.
func bareEvent(object any) (any, error) {
	e, ok := object.(*corev1.Event)
	if !ok {
		return object, nil
	}
	bare := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, UID: e.InvolvedObject.UID},
		Reason:         e.Reason, EventTime: e.EventTime, FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, Series: e.Series,
	}
	bare.Name, bare.Namespace, bare.UID, bare.ResourceVersion = e.Name, e.Namespace, e.UID, e.ResourceVersion
	bare.CreationTimestamp = metav1.NewTime(written(e))
	return bare, nil
}
