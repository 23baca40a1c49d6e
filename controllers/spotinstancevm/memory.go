package spotinstancevm

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// memo is what this process remembers of one instance. It may be lost at any time: the next process asks again, which is
// harmless, since requests to create have an ID that is in the status, and those to delete are the same twice.
type memo struct {
	create, remove request
	// looked is what the provider said when it was asked for this very instance, at lookedAt; nil when it did not know it.
	looked   *cloud.Instance
	lookedAt time.Time
	// preempted is the answer to why an instance stopped.
	preempted request
	// takenBack says that the provider took the instance back.
	takenBack bool
	// idleSince is since when no pod of a job is on its node and it is kept for none; zero while there is one.
	idleSince time.Time
	// emptySince is since when there is no such pod, whether the instance is kept for one or not; zero while there is one.
	emptySince time.Time
	// revoked says that what the instance joined with is no longer valid.
	revoked bool
	// nodeless says that the API server has no Node of the instance.
	nodeless bool
	// joining is the login of method SSH.
	joining request
}

type request struct {
	// sentAt is when it was first sent; zero when this process has not.
	sentAt time.Time
	// operation that it became; without a name when its answer was lost.
	operation cloud.Operation
	// settledAt is when it came to its end; zero before.
	settledAt time.Time
	// err is why it failed, or the last try did.
	err error
	// tries of it, or polls of its operation; next is when the next is due.
	tries int
	next  time.Time
	// running in the background.
	running bool
}

func (r *request) isSent() bool    { return !r.sentAt.IsZero() }
func (r *request) isSettled() bool { return !r.settledAt.IsZero() }

// isUnreadable says that the operation which the request became cannot be read, and will not be.
func (r *request) isUnreadable() bool {
	return r.isSent() && !r.isSettled() && r.operation.Name != "" && r.err != nil && !isRetryable(r.err)
}

// Pace says how long to wait for what happens by itself. Tests are faster.
type Pace struct {
	// First and Most bound the time between two polls of an operation, and between two tries of a request: it doubles.
	First, Most time.Duration
	// Bind is how long a node is left to the scheduler after it became ready, even when idle nodes go at once.
	Bind time.Duration
}

// defaultPace is that of the real world.
var defaultPace = Pace{First: time.Second, Most: 30 * time.Second, Bind: 5 * time.Second}

func (p Pace) retryIn(tries int) time.Duration {
	return reconciling.Doubled(p.First, p.Most, tries-1)
}

type vmMemo struct {
	instances map[string]*memo
	// ended is when instances were seen to be gone, by name: older lists still show them.
	ended map[string]time.Time
	// lastSent is when an instance was last asked for.
	lastSent time.Time
	hold     hold
	// shapes of machine types, by name. Why one is not known is a matter of these zones and credentials; what was read, the provider remembers for all.
	shapes map[string]knownShape
	// name of the SpotInstanceVM.
	name types.NamespacedName
	// secret that has the finalizer of the SpotInstanceVM; empty for none.
	secret string
}

// knownShape is what a machine type offers, which does not change.
type knownShape struct {
	shape *cloud.Shape
	// err, the time and the number of tries of a shape that could not be read.
	err   error
	asked time.Time
	tries int
}

// instance is what is remembered of one.
func (m *vmMemo) instance(name string) *memo {
	if m.instances[name] == nil {
		m.instances[name] = &memo{}
	}
	return m.instances[name]
}

// hold keeps a SpotInstanceVM from asking for instances, after a failure that would only repeat itself.
type hold struct {
	until      time.Time
	generation int64
	failures   int
	problem    problem
}

// firstHold and longestHold bound how long a failure that would only repeat itself keeps a SpotInstanceVM from asking
// again. A change of its spec ends the wait.
const (
	firstHold   = 30 * time.Second
	longestHold = 10 * time.Minute
)

// extend the hold by another failure.
func (h hold) extend(now time.Time, generation int64, why problem, least time.Duration) hold {
	failures := 0
	if h.generation == generation {
		failures = h.failures
	}
	wait := reconciling.Doubled(max(firstHold, least), max(longestHold, least), failures)
	return hold{until: now.Add(wait), generation: generation, failures: failures + 1, problem: why}
}

// isActive says whether instances must not be asked for now.
func (h hold) isActive(now time.Time, generation int64) bool {
	return h.generation == generation && now.Before(h.until)
}

type memory struct {
	mu  sync.Mutex
	vms map[types.UID]*vmMemo
}

func (m *memory) edit(vm types.UID, edit func(*vmMemo)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.vms == nil {
		m.vms = map[types.UID]*vmMemo{}
	}
	if m.vms[vm] == nil {
		m.vms[vm] = &vmMemo{instances: map[string]*memo{}, ended: map[string]time.Time{}, shapes: map[string]knownShape{}}
	}
	edit(m.vms[vm])
}

func (m *memory) copyOf(vm types.UID) (copied vmMemo) {
	m.edit(vm, func(known *vmMemo) {
		copied = *known
		copied.instances, copied.ended, copied.shapes = map[string]*memo{}, maps.Clone(known.ended), maps.Clone(known.shapes)
		for name, one := range known.instances {
			is := *one
			copied.instances[name] = &is
		}
	})
	return copied
}

// settle takes over what the plan decided of the memory.
func (m *memory) settle(vm *spotv1alpha1.SpotInstanceVM, d desired, now time.Time) {
	m.edit(vm.UID, func(known *vmMemo) {
		known.hold, known.name, known.secret = d.hold, client.ObjectKeyFromObject(vm), d.secret
		for _, edit := range d.memory {
			edit(known)
		}
		maps.DeleteFunc(known.ended, func(_ string, at time.Time) bool { return now.Sub(at) > time.Hour })
	})
}

// secretsOf are the Secrets that have the finalizer of a SpotInstanceVM, of all that have had the name.
func (m *memory) secretsOf(vm types.NamespacedName) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, known := range m.vms {
		if known.name == vm && known.secret != "" && !slices.Contains(names, known.secret) {
			names = append(names, known.secret)
		}
	}
	return names
}

func (m *memory) forget(vm types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.vms, func(_ types.UID, known *vmMemo) bool { return known.name == vm })
}
