package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Dispatcher runs the jobs of the executor Kubernetes. Each replica of the service has one and leases what it makes AIJobs of; what
// a replica leaves behind when it ends another leases again, and finds the AIJob by its name.
type Dispatcher struct {
	cluster  *Cluster
	store    jobs.Store
	settings Settings
	log      *slog.Logger
	metrics  *Metrics

	queue workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// tasks are the jobs that this replica has leased, by ID; strays are AIJobs to cancel whose jobs another may have.
	tasks  map[string]*task
	strays map[string]types.NamespacedName
	// loops are the queues that are leased from.
	loops map[string]bool
	// start does something in the background; nil while the Dispatcher does not run.
	start func(work func(context.Context))
	// checked is when the store was last asked about an AIJob that no task here watches.
	checked map[types.UID]time.Time
}

// Settings of a Dispatcher.
type Settings struct {
	// Worker names this replica in leases.
	Worker string
	// MaxAIJobs that this replica looks after at a time, and MaxWaiting of them that wait in one queue: the rest waits in the store,
	// where it costs the API server nothing. Namespaces share both evenly; one that comes when others have them all gets its share
	// beyond them.
	MaxAIJobs, MaxWaiting int
	// TTL is how long an AIJob stays after its end.
	TTL time.Duration
	// Discovery is how often it is asked which queues have jobs, Sweep how often AIJobs are looked for that are done with.
	Discovery, Sweep time.Duration
	// Backoff is the longest delay before something is tried again that did not work.
	Backoff time.Duration
	// Access says whether the user of a job may still create its AIJob when the job starts; nil: it is not asked.
	Access *auth.Access
	// LeaseWait is how long a request for jobs waits for one.
	LeaseWait time.Duration
}

// task is a job that this replica has leased.
type task struct {
	job   jobs.Job
	fence int64
	// visibility is how long the lease lasts without a heartbeat; renewed is when the last one was.
	visibility time.Duration
	renewed    time.Time
	since      time.Time
	// uid of the AIJob, once it was made or found.
	uid types.UID
	// told is the phase that the store knows.
	told jobs.Status
	// requeued is the end that the AIJob had before it was put back into its queue.
	requeued time.Time
	// cancelled says that the job has ended without its AIJob.
	cancelled bool
}

func (t *task) waits() bool { return t.told != jobs.Running && t.told != jobs.Scheduled }

// reconnect is how long it is waited before the API server is asked again for kinds that it did not serve.
const reconnect = 3 * time.Second

// syncers is how many AIJobs are worked on at a time; the client's limits are what holds them back.
const syncers = 16

// NewDispatcher returns a Dispatcher of the jobs in a store.
func NewDispatcher(cluster *Cluster, store jobs.Store, settings Settings, metrics *Metrics, log *slog.Logger) *Dispatcher {
	return &Dispatcher{
		cluster: cluster, store: store, settings: settings, log: log, metrics: metrics,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](min(200*time.Millisecond, settings.Backoff), settings.Backoff)),
		tasks: map[string]*task{}, strays: map[string]types.NamespacedName{}, loops: map[string]bool{},
		checked: map[types.UID]time.Time{},
	}
}

// Run dispatches until the context ends. The leases that are held then run out, and other replicas take over.
func (d *Dispatcher) Run(ctx context.Context) error {
	var informer cache.Informer
	err := wait.PollUntilContextCancel(ctx, reconnect, true, func(ctx context.Context) (ready bool, err error) {
		if informer, err = d.synced(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("Not dispatching jobs to Kubernetes yet: the API server does not answer or does not serve AIJobs", "error", err)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil // the context has ended
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    d.noticed,
		UpdateFunc: func(_, object any) { d.noticed(object) },
		DeleteFunc: d.noticed,
	})
	if err != nil {
		return fmt.Errorf("follow AIJobs: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // it is only refused after the informer has ended
	group, ctx := errgroup.WithContext(ctx)
	start := func(work func(context.Context)) {
		group.Go(func() error {
			work(ctx)
			return nil
		})
	}
	d.mu.Lock()
	d.start = start
	d.mu.Unlock()
	start(func(ctx context.Context) { wait.UntilWithContext(ctx, d.discover, d.settings.Discovery) })
	start(func(ctx context.Context) { wait.UntilWithContext(ctx, d.renewDue, time.Second) })
	start(func(ctx context.Context) {
		pause(ctx, d.settings.Sweep) // what this replica left behind is leased again first
		wait.UntilWithContext(ctx, d.sweep, d.settings.Sweep)
	})
	for range syncers {
		start(func(ctx context.Context) {
			for d.next(ctx) {
			}
		})
	}
	start(func(ctx context.Context) {
		<-ctx.Done()
		d.mu.Lock()
		d.start = nil
		d.mu.Unlock()
		d.queue.ShutDown()
	})
	return group.Wait()
}

// synced returns the informer of AIJobs, once it and that of AIJobQueues have all that there is: nothing is leased before, while the API
// server cannot be reached or the kinds are not installed. A cache that does not run yet gives them at once, and empty.
func (d *Dispatcher) synced(ctx context.Context) (informer cache.Informer, err error) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	for _, object := range []client.Object{&aiplatformv1alpha1.AIJobQueue{}, &aiplatformv1alpha1.AIJob{}} {
		if informer, err = d.cluster.cached.GetInformer(ctx, object); err != nil {
			return nil, err
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil, errors.New("they have not been listed yet")
		}
	}
	return informer, nil
}

// noticed has a changed AIJob looked at, when its job is this replica's.
func (d *Dispatcher) noticed(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	aijob, ok := object.(*aiplatformv1alpha1.AIJob)
	if !ok {
		return
	}
	id := idOf(aijob)
	d.mu.Lock()
	_, ours := d.tasks[id]
	d.mu.Unlock()
	if ours {
		d.queue.Add(id)
	}
}

// take begins to look after a leased job.
func (d *Dispatcher) take(lease jobs.Lease) {
	now := time.Now()
	d.mu.Lock()
	d.tasks[lease.Job.ID] = &task{
		job: lease.Job, fence: lease.Fence, visibility: lease.Visibility, renewed: now, since: now,
	}
	d.metrics.held.Set(float64(len(d.tasks)))
	d.mu.Unlock()
	d.queue.Add(lease.Job.ID)
}

// forget a task: its job has ended, or is another's. A lease of the same job that is newer stays.
func (d *Dispatcher) forget(id string, fence int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tasks[id]; ok && t.fence == fence {
		delete(d.tasks, id)
	}
	d.metrics.held.Set(float64(len(d.tasks)))
}

// task returns a copy of what is known of a task.
func (d *Dispatcher) task(id string) (task, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tasks[id]
	if !ok {
		return task{}, false
	}
	return *t, true
}

// change a task that is still that of the same lease.
func (d *Dispatcher) change(id string, fence int64, change func(*task)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tasks[id]; ok && t.fence == fence {
		change(t)
	}
}

// shares are the places for AIJobs that wait in a queue, those for all of this replica, and who has them. full says whether one of the two
// has no place left.
func (d *Dispatcher) shares(queue string) (shares []jobs.Share, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	inQueue, inAll, waiting := map[string]int{}, map[string]int{}, 0
	for _, t := range d.tasks {
		inAll[t.job.Namespace]++
		if t.job.Queue == queue && t.waits() {
			inQueue[t.job.Namespace]++
			waiting++
		}
	}
	return []jobs.Share{{Places: d.settings.MaxWaiting, Held: inQueue}, {Places: d.settings.MaxAIJobs, Held: inAll}},
		waiting >= d.settings.MaxWaiting || len(d.tasks) >= d.settings.MaxAIJobs
}
