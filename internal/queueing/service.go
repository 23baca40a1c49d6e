package queueing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// Cycles come at once while there are few, and else 50 ms apart, so that many changes are decided upon together. The time between
// two is at least restPerCycle times that of the first: where thousands wait there are others who need the processor.
const (
	cyclesPerSecond = 20
	cyclesAtOnce    = 10
	restPerCycle    = 4
)

// again is when waiting jobs are looked at although nothing changed: they grow older, and are told their new place.
const again = minorInterval

// Kinds for Changes that are no jobs.
const (
	KindQueue   = "AIJobQueue"
	KindCluster = "ComputeCluster"
)

// figuresAfter is when the controllers of queues and clusters learn of other figures: those change by the hundred.
const figuresAfter = 500 * time.Millisecond

// logger tells at V(2) of cycles that decided something. The controllers of jobs log each of them.
var logger = ctrl.Log.WithName("queueing")

// Metrics counts cycles.
type Metrics interface {
	// Cycle took the time, over so many jobs that waited, and decided on so many.
	Cycle(took time.Duration, pending, admitted, preempted int)
}

// Service implements Decider. Add it to the manager after the sources have been added to it; it works while it has the
// leadership.
type Service struct {
	// RequireQueue keeps jobs waiting that name no queue. Set it before the manager starts.
	RequireQueue bool

	mgr     ctrl.Manager
	metrics Metrics // nil: not counted
	sources []*Source
	changes map[string]*notifier // by kind
	wake    chan struct{}

	mutex sync.Mutex
	model *model // guarded by the mutex

	listed atomic.Bool // jobs, queues and clusters are known
	synced atomic.Bool // and nodes and pods as well
}

// New makes a Service, which counts its cycles unless metrics is nil.
func New(mgr ctrl.Manager, metrics Metrics) *Service {
	return &Service{
		mgr: mgr, metrics: metrics, wake: make(chan struct{}, 1), model: newModel(),
		changes: map[string]*notifier{KindQueue: {after: figuresAfter}, KindCluster: {after: figuresAfter}},
	}
}

// Add a kind of job, before the manager starts.
func (s *Service) Add(kind Source) {
	s.sources = append(s.sources, &kind)
	s.notifierOf(kind.Kind)
}

func (s *Service) notifierOf(kind string) *notifier {
	if s.changes[kind] == nil {
		s.changes[kind] = &notifier{}
	}
	return s.changes[kind]
}

// Changes implements Decider. Of KindQueue and KindCluster it is the source of events for their controllers: another figure. Call it
// before the manager starts.
func (s *Service) Changes(kind string) source.Source { return s.notifierOf(kind).source() }

// NeedLeaderElection has only the leader decide.
func (s *Service) NeedLeaderElection() bool { return true }

// Decision implements Decider. It is false as well while the object in the manager's cache is newer than the one that was
// decided upon; the controller of the job is told once that has been looked at. So a controller never acts upon a decision
// on a state that it has itself left behind. It must write what it makes of an admission under the optimistic lock.
func (s *Service) Decision(uid types.UID) (Decision, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	j := s.model.jobs[uid]
	if j == nil || !j.known() {
		return Decision{}, false
	}
	current := j.source.Object.DeepCopyObject().(client.Object)
	key := types.NamespacedName{Namespace: j.Namespace, Name: j.Name}
	err := s.mgr.GetCache().Get(context.Background(), key, current, client.UnsafeDisableDeepCopy) // only the version is read
	if err != nil || current.GetUID() != uid || current.GetResourceVersion() != j.resourceVersion {
		j.ask = true
		return Decision{}, false
	}
	return j.decision(), true
}

// Queue says what the jobs of a queue do; false until all jobs are known.
func (s *Service) Queue(name string) (QueueFigures, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.model.queueFigures(name), s.synced.Load()
}

// Cluster says what there is of the nodes with the labels, and what runs in the ComputeCluster of the name; false until nodes,
// pods and jobs are known.
func (s *Service) Cluster(name string, selector map[string]string) (ClusterFigures, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.synced.Load() {
		return ClusterFigures{}, false
	}
	return s.model.clusterFigures(selector, name), true
}

// NodeUses say what there is on some nodes; false until that is known. Where there is nothing to decide, nodes are not looked at, and
// nothing is reported about them.
func (s *Service) NodeUses(nodes []string) (map[string]NodeUse, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.synced.Load() {
		return nil, s.listed.Load() && !s.model.needed()
	}
	return s.model.nodeUses(nodes), true
}

// Depths are the numbers of jobs that wait in each queue that exists.
func (s *Service) Depths() map[string]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	depths := map[string]int{}
	for name := range s.model.queues {
		depths[name] = s.model.queueFigures(name).Depth
	}
	return depths
}

// Start implements manager.Runnable.
func (s *Service) Start(ctx context.Context) error {
	if err := s.catchUp(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := s.watchJobs(ctx); err != nil {
		return err
	}
	s.listed.Store(true)
	if !s.awaitWork(ctx) {
		return nil
	}
	if err := s.watchRoom(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.synced.Store(true)
	s.tellAll()
	return s.run(ctx)
}

// awaitWork waits until there is something for which nodes and pods must be known: most clusters have a job one day, but a
// cluster without one should not pay for a watch of all its pods. It returns false when the context ended.
func (s *Service) awaitWork(ctx context.Context) bool {
	for {
		s.mutex.Lock()
		needed := s.model.needed()
		s.mutex.Unlock()
		if needed {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.wake:
		}
	}
}

// run decides until the context ends.
func (s *Service) run(ctx context.Context) error {
	pace := flowcontrol.NewTokenBucketRateLimiter(cyclesPerSecond, cyclesAtOnce)
	s.rouse()
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.remind()
		case <-s.wake:
		}
		if err := pace.Wait(ctx); err != nil {
			return nil //nolint:nilerr // the context has ended
		}
		start := time.Now()
		s.cycle()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restPerCycle * time.Since(start)):
		}
	}
}

// remind the controllers of jobs that do not act upon a decision: an unused reservation keeps others out.
func (s *Service) remind() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := time.Now()
	for _, j := range s.model.jobs {
		if j.state == Waiting && j.admitted != nil && now.Sub(j.admittedAt) >= again {
			s.notifierOf(j.source.Kind).tell(j.Namespace, j.Name)
		}
	}
}

// cycle decides once. Events go into the model meanwhile, and lead to another cycle.
func (s *Service) cycle() {
	s.mutex.Lock()
	pending := s.model.waiting
	if pending == 0 {
		s.mutex.Unlock()
		return
	}
	start := time.Now()
	snapshot, seen := s.model.snapshot(start), s.model.seen()
	snapshot.RequireQueue = s.RequireQueue
	s.mutex.Unlock()

	decisions := scheduler.Schedule(snapshot)

	s.mutex.Lock()
	o := s.model.take(decisions, seen, time.Now())
	for _, j := range o.tell {
		s.tell(j)
	}
	s.mutex.Unlock()
	if o.stale {
		s.rouse()
	}
	took := time.Since(start)
	if o.admitted+o.preempted > 0 {
		logger.V(2).Info("Scheduling cycle", "pending", pending, "admitted", o.admitted, "preempted", o.preempted, "duration", took)
	}
	if s.metrics != nil {
		s.metrics.Cycle(took, pending, o.admitted, o.preempted)
	}
}

// tell the controller of a job about it, and those of its queue and cluster.
func (s *Service) tell(j *job) {
	priority := decidedPriority
	if j.admitted == nil && j.preempted == nil {
		priority = WaitsPriority
	}
	s.notifierOf(j.source.Kind).tellWith(j.Namespace, j.Name, priority)
	if j.admitted != nil {
		s.tellFigures(j)
	}
}

func (s *Service) tellFigures(j *job) {
	if j.Queue != "" {
		s.changes[KindQueue].tell("", j.Queue)
	}
	if j.holds() || j.Cluster != "" {
		s.tellClusters()
	}
}

func (s *Service) tellClusters() {
	for name := range s.model.clusters {
		s.changes[KindCluster].tell("", name)
	}
}

func (s *Service) tellAll() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name := range s.model.queues {
		s.changes[KindQueue].tell("", name)
	}
	s.tellClusters()
}

// rouse asks for a cycle.
func (s *Service) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
