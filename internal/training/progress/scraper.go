package progress

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// maxBody bounds how much of an answer is read, in bytes.
	maxBody = 1 << 20
	// firstRetry is the pause after a first failed scrape: a worker opens its metrics port a little after it starts.
	firstRetry = time.Second
)

// ScraperOptions are the settings of a Scraper.
type ScraperOptions struct {
	// Interval between two scrapes of one job. Default 30s.
	Interval time.Duration
	// Timeout of one scrape. Default 5s.
	Timeout time.Duration
	// Workers is how many jobs are scraped at the same time. Default 10.
	Workers int
	// Changed is called, from a worker, when a job reported other figures than before. It must not block.
	Changed func(job types.NamespacedName)
	// Scraped is called, from a worker, after each attempt, with the time that it took. It must not block. Optional.
	Scraped func(job types.NamespacedName, took time.Duration, err error)
	// Clock tells the time. Default the real one.
	Clock clock.WithTicker
}

// Scraper reads the metrics of many jobs, and what their checkpoint agents report, with a bounded number of workers. It
// keeps the last figures and the last report of each in memory and is safe for concurrent use.
type Scraper struct {
	options ScraperOptions
	client  *http.Client
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex
	targets map[types.NamespacedName]*Reading
}

// Target is where replica 0 of a job is asked. What is empty is not asked for.
type Target struct {
	// Metrics is the URL of the worker's metrics.
	Metrics string
	// Network is the URL of the check of the network, without a path.
	Network string
	// Agent is the URL of the checkpoint agent, without a path.
	Agent string
	// Request is the id of a checkpoint that the agent is to be asked for, until it has reported the outcome.
	Request string
	// Urgent asks several times a second for the outcome.
	Urgent bool
}

// places is the target without what is asked for there.
func (t Target) places() Target {
	return Target{Metrics: t.Metrics, Network: t.Network, Agent: t.Agent}
}

// Reading is what is known of a job: where it is asked, and what was last read there.
type Reading struct {
	Target

	// Figures of the worker, and when they were read; nil for none.
	Figures *Figures
	Time    time.Time
	// Report of the checkpoint agent, which must not be changed; nil for none.
	Report *report.Report
	// Reached is the report of the check of the network, which must not be changed; nil for none.
	Reached *preflight.Report

	failures int
}

// outcome is what one scrape brought, each nil when it was not asked for or could not be read.
type outcome struct {
	figures *Figures
	report  *report.Report
	reached *preflight.Report
	failed  bool
}

// NewScraper returns a Scraper that scrapes nothing until it is started and follows a job.
func NewScraper(options ScraperOptions) *Scraper {
	options.Interval = cmp.Or(max(options.Interval, 0), 30*time.Second)
	options.Timeout = cmp.Or(max(options.Timeout, 0), 5*time.Second)
	options.Workers = cmp.Or(max(options.Workers, 0), 10)
	options.Clock = cmp.Or[clock.WithTicker](options.Clock, clock.RealClock{})
	transport := &http.Transport{IdleConnTimeout: 2 * options.Interval, MaxIdleConnsPerHost: 1, DisableCompression: true}
	return &Scraper{
		options: options,
		client: &http.Client{
			Timeout: options.Timeout, Transport: transport,
			// A worker runs its user's code, which must not send the manager to other addresses.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
			Name: "progress-scraper", Clock: options.Clock,
		}),
		targets: map[types.NamespacedName]*Reading{},
	}
}

// Start scrapes until the context ends. It is a controller-runtime Runnable.
func (s *Scraper) Start(ctx context.Context) error {
	var workers wait.Group
	for range s.options.Workers {
		workers.StartWithContext(ctx, s.work)
	}
	<-ctx.Done()
	s.queue.ShutDown()
	workers.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// Follow scrapes a job's replica 0 at the target from now on, at once when it is new. An empty target ends it. The
// figures and the report of other URLs are dropped: they are from an earlier attempt.
func (s *Scraper) Follow(job types.NamespacedName, to Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.targets[job]
	switch {
	case known == nil && to == Target{}:
		return
	case known == nil:
		known = &Reading{}
		s.targets[job] = known
	case known.Target == to:
		return
	}
	next := Reading{Target: to}
	if known.Metrics == to.Metrics {
		next.Figures, next.Time = known.Figures, known.Time
	}
	if known.Agent == to.Agent {
		next.Report = known.Report
	}
	if known.Network == to.Network {
		next.Reached = known.Reached
	}
	*known = next
	if to.places() != (Target{}) {
		s.queue.Add(job)
	}
}

// Forget ends the scraping of a job and drops its figures.
func (s *Scraper) Forget(job types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.targets, job)
}

// Latest returns what is known of a job; nothing of one that is not followed.
func (s *Scraper) Latest(job types.NamespacedName) Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.targets[job]; known != nil {
		return *known
	}
	return Reading{}
}

func (s *Scraper) work(ctx context.Context) {
	for {
		job, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		s.scrape(ctx, job)
		s.queue.Done(job)
	}
}

// scrape asks the worker and the agent of a job at the same time, and tells once what both brought.
func (s *Scraper) scrape(ctx context.Context, job types.NamespacedName) {
	at := s.Latest(job).Target
	if at.places() == (Target{}) {
		return
	}
	var brought outcome
	var agentFailed, workerFailed, networkFailed error
	var asked sync.WaitGroup
	if at.Network != "" {
		asked.Go(func() { brought.reached, networkFailed = s.askNetwork(ctx, at) })
	}
	if at.Agent != "" {
		asked.Go(func() { brought.report, agentFailed = s.askAgent(ctx, at) })
	}
	if at.Metrics != "" {
		start := s.options.Clock.Now()
		brought.figures, workerFailed = s.fetch(ctx, at.Metrics)
		if s.options.Scraped != nil && ctx.Err() == nil {
			s.options.Scraped(job, s.options.Clock.Since(start), workerFailed)
		}
	}
	asked.Wait()
	brought.failed = agentFailed != nil || workerFailed != nil || networkFailed != nil
	again, changed := s.record(job, at, brought)
	if again > 0 {
		s.queue.AddAfter(job, again)
	}
	if changed && s.options.Changed != nil {
		s.options.Changed(job)
	}
}

// record keeps the outcome of a scrape. It returns when to scrape again, 0 for never by this call, and whether
// something changed.
func (s *Scraper) record(job types.NamespacedName, at Target, brought outcome) (again time.Duration, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.targets[job]
	if known == nil || known.places() != at.places() {
		return 0, false
	}
	if brought.figures != nil {
		changed = known.Figures == nil || !known.Figures.Equal(*brought.figures)
		known.Figures, known.Time = brought.figures, s.options.Clock.Now()
	}
	if brought.report != nil {
		changed = changed || known.Report == nil || !sameNews(*known.Report, *brought.report)
		known.Report = brought.report
	}
	if brought.reached != nil {
		changed = changed || known.Reached == nil || !reflect.DeepEqual(*known.Reached, *brought.reached)
		known.Reached = brought.reached
	}
	again = known.poll(s.options.Interval)
	if brought.failed {
		known.failures++
		return min(firstRetry<<min(known.failures-1, 10), again), changed
	}
	known.failures = 0
	return again, changed
}

func (s *Scraper) fetch(ctx context.Context, url string) (*Figures, error) {
	text, err := s.call(ctx, http.MethodGet, url, http.StatusOK, maxBody)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	figures, err := Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return &figures, nil
}
