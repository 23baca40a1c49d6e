package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/scheduler"
)

// Cycles come at once while there are few, and else 50 ms apart, so that many changes are decided upon together.
const (
	cyclesPerSecond = 20
	cyclesAtOnce    = 10
)

// again is when waiting jobs are looked at although nothing changed: they grow older, and are told their new place.
const again = minorInterval

// figuresAfter is when the controllers of queues and clusters are told of other figures: those change by the hundred.
const figuresAfter = 200 * time.Millisecond

// Options of the Service.
type Options struct {
	// Schedule decides: scheduler.Schedule.
	Schedule func(scheduler.Snapshot) scheduler.Decisions
	// Clock tells the time; nil for the real one.
	Clock clock.PassiveClock
	// Metrics measures cycles.
	Metrics Metrics
}

// Metrics is told of cycles.
type Metrics interface {
	// Cycle took the time, over so many jobs that waited, and decided on so many.
	Cycle(took time.Duration, pending, admitted, preempted int)
}

// Service implements Decider. Add it to the manager after the sources have been added to it; it works while it has the
// leadership.
type Service struct {
	mgr     ctrl.Manager
	options Options
	sources []*Source
	jobs    map[string]*news // by kind

	queueNews, clusterNews news

	wake chan struct{}

	mutex sync.Mutex
	// model and what follows are guarded by the mutex.
	model  *model
	synced bool // nodes and pods are known
}

// New makes a Service.
func New(mgr ctrl.Manager, options Options) *Service {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Service{
		mgr: mgr, options: options, jobs: map[string]*news{}, wake: make(chan struct{}, 1), model: newModel(),
		queueNews: news{after: figuresAfter}, clusterNews: news{after: figuresAfter},
	}
}

// Add a kind of job, before the manager starts.
func (s *Service) Add(kind Source) {
	s.sources = append(s.sources, &kind)
	s.newsOf(kind.Kind)
}

func (s *Service) newsOf(kind string) *news {
	if s.jobs[kind] == nil {
		s.jobs[kind] = &news{}
	}
	return s.jobs[kind]
}

// Changes implements Decider. Call it before the manager starts.
func (s *Service) Changes(kind string) source.Source { return s.newsOf(kind).source() }

// QueueChanges is the source of events for the controller of AIJobQueues: another figure of the queue.
func (s *Service) QueueChanges() source.Source { return s.queueNews.source() }

// ClusterChanges is the same for ComputeClusters.
func (s *Service) ClusterChanges() source.Source { return s.clusterNews.source() }

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
	err := s.mgr.GetCache().Get(context.Background(), types.NamespacedName{Namespace: j.Namespace, Name: j.Name}, current)
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
	return s.model.queueFigures()[name], s.synced
}

// Cluster says what there is of the nodes with the labels, and what runs in the ComputeCluster of the name; false until nodes,
// pods and jobs are known.
func (s *Service) Cluster(name string, selector map[string]string) (ClusterFigures, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.synced {
		return ClusterFigures{}, false
	}
	return s.model.clusterFigures(selector, name), true
}

// Depths are the numbers of jobs that wait in each queue that exists.
func (s *Service) Depths() map[string]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	depths, figures := map[string]int{}, s.model.queueFigures()
	for name := range s.model.queues {
		depths[name] = figures[name].Depth
	}
	return depths
}

// Start implements manager.Runnable.
func (s *Service) Start(ctx context.Context) error {
	if err := s.watchJobs(ctx); err != nil {
		return err
	}
	if !s.awaitWork(ctx) {
		return nil
	}
	if err := s.watchRoom(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.mutex.Lock()
	s.synced = true
	s.mutex.Unlock()
	s.tellAll()
	return s.run(ctx)
}

// awaitWork waits until there is something for which nodes and pods must be known: most clusters have a job one day, but a
// cluster without one should not pay for a watch of all its pods. It returns false when the context ended.
func (s *Service) awaitWork(ctx context.Context) bool {
	for {
		s.mutex.Lock()
		needed := len(s.model.jobs) > 0 || len(s.model.clusters) > 0 || len(s.model.queues) > 0
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
		case <-s.wake:
		}
		if err := pace.Wait(ctx); err != nil {
			return nil //nolint:nilerr // the context has ended
		}
		s.cycle()
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
	start := s.options.Clock.Now()
	snapshot, seen := s.model.snapshot(start), s.model.seen()
	s.mutex.Unlock()

	decisions := s.options.Schedule(snapshot)

	s.mutex.Lock()
	o := s.model.take(decisions, seen, s.options.Clock.Now())
	for _, j := range o.tell {
		s.tell(j)
	}
	s.mutex.Unlock()
	if o.stale {
		s.rouse()
	}
	if s.options.Metrics != nil {
		s.options.Metrics.Cycle(s.options.Clock.Since(start), pending, o.admitted, o.preempted)
	}
}

// tell the controller of a job about it, and those of its queue and cluster.
func (s *Service) tell(j *job) {
	s.newsOf(j.source.Kind).tell(j.Namespace, j.Name)
	if j.admitted != nil {
		s.tellFigures(j)
	}
}

func (s *Service) tellFigures(j *job) {
	if j.Queue != "" {
		s.queueNews.tell("", j.Queue)
	}
	if j.holds() || j.Cluster != "" {
		s.tellClusters()
	}
}

func (s *Service) tellClusters() {
	for name := range s.model.clusters {
		s.clusterNews.tell("", name)
	}
}

func (s *Service) tellAll() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name := range s.model.queues {
		s.queueNews.tell("", name)
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

// watch calls set for every object of a kind that comes or changes, and drop for those that go, both with the model locked,
// and rouses when they say that something counts. It returns once the objects that there are have been told.
func (s *Service) watch(ctx context.Context, object client.Object, set func(client.Object) bool, drop func(client.Object) bool) error {
	informer, err := s.mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(true))
	if err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	registration, err := informer.AddEventHandler(s.handler(
		func(o any) bool { return set(o.(client.Object)) }, func(o any) bool { return drop(o.(client.Object)) }))
	if err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	return nil
}

func (s *Service) handler(set, drop func(any) bool) toolscache.ResourceEventHandler {
	with := func(do func(any) bool, object any) {
		s.mutex.Lock()
		counts := do(object)
		s.mutex.Unlock()
		if counts {
			s.rouse()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { with(set, o) },
		UpdateFunc: func(_, o any) { with(set, o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if o != nil {
				with(drop, o)
			}
		},
	}
}

// watchJobs follows jobs, queues and clusters.
func (s *Service) watchJobs(ctx context.Context) error {
	for _, kind := range s.sources {
		if err := s.watch(ctx, kind.Object, func(o client.Object) bool { return s.setJob(kind, o) }, s.dropJob); err != nil {
			return err
		}
	}
	err := s.watch(ctx, &aiplatformv1alpha1.AIJobQueue{}, func(o client.Object) bool {
		s.model.queues[o.GetName()] = queueOf(o.(*aiplatformv1alpha1.AIJobQueue))
		return true
	}, func(o client.Object) bool {
		delete(s.model.queues, o.GetName())
		return true
	})
	if err != nil {
		return err
	}
	return s.watch(ctx, &aiplatformv1alpha1.ComputeCluster{}, func(o client.Object) bool {
		s.model.clusters[o.GetName()] = clusterOf(o.(*aiplatformv1alpha1.ComputeCluster))
		return true
	}, func(o client.Object) bool {
		delete(s.model.clusters, o.GetName())
		return true
	})
}

func (s *Service) setJob(kind *Source, object client.Object) bool {
	is, state := kind.Job(object)
	is.Kind, is.UID, is.Namespace, is.Name = kind.Kind, object.GetUID(), object.GetNamespace(), object.GetName()
	left := ""
	if was := s.model.jobs[is.UID]; was != nil {
		left = was.Queue
	}
	changed, j := s.model.setJob(kind, is, state, object.GetResourceVersion())
	if j != nil && j.ask {
		j.ask = false
		s.newsOf(kind.Kind).tell(j.Namespace, j.Name)
	}
	if changed {
		s.tellFigures(j)
	}
	if left != "" && left != is.Queue {
		s.queueNews.tell("", left)
	}
	return changed
}

func (s *Service) dropJob(object client.Object) bool {
	j := s.model.jobs[object.GetUID()]
	if j == nil {
		return false
	}
	s.model.dropJob(j.UID)
	s.tellFigures(j)
	return true
}

// watchRoom follows nodes and pods.
func (s *Service) watchRoom(ctx context.Context) error {
	err := s.watch(ctx, &corev1.Node{}, func(o client.Object) bool {
		changed := s.model.setNode(nodeOf(o.(*corev1.Node)))
		if changed {
			s.tellClusters()
		}
		return changed
	}, func(o client.Object) bool {
		s.model.dropNode(o.GetName())
		s.tellClusters()
		return true
	})
	if err != nil {
		return err
	}
	return watchPods(ctx, s.mgr, s.handler(func(o any) bool {
		p := o.(*pod)
		changed := s.model.setPod(p)
		if changed && p.requests.GPUs > 0 {
			s.tellClusters()
		}
		return changed
	}, func(o any) bool {
		p := o.(*pod)
		s.model.dropPod(p.UID)
		if p.requests.GPUs > 0 {
			s.tellClusters()
		}
		return true
	}))
}
