package progress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
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

// Scraper reads the metrics of many jobs with a bounded number of workers. It keeps the last figures of each in
// memory and is safe for concurrent use.
type Scraper struct {
	options ScraperOptions
	client  *http.Client
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex
	targets map[types.NamespacedName]*target
}

type target struct {
	url      string
	figures  Figures
	time     time.Time
	failures int
}

// NewScraper returns a Scraper that scrapes nothing until it is started and told of a job.
func NewScraper(options ScraperOptions) *Scraper {
	if options.Interval <= 0 {
		options.Interval = 30 * time.Second
	}
	if options.Timeout <= 0 {
		options.Timeout = 5 * time.Second
	}
	if options.Workers <= 0 {
		options.Workers = 10
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
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
		targets: map[types.NamespacedName]*target{},
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

// Follow scrapes a job's replica 0 at the URL from now on, at once when the URL is new. An empty URL ends it. The
// figures of another URL are dropped: they tell of an earlier attempt.
func (s *Scraper) Follow(job types.NamespacedName, url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.targets[job]
	switch {
	case known == nil && url == "":
		return
	case known == nil:
		known = &target{}
		s.targets[job] = known
	case known.url == url:
		return
	}
	*known = target{url: url}
	if url != "" {
		s.queue.Add(job)
	}
}

// Forget ends the scraping of a job and drops its figures.
func (s *Scraper) Forget(job types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.targets, job)
}

// Latest returns the last figures of a job and when they were read; false when there are none.
func (s *Scraper) Latest(job types.NamespacedName) (Figures, time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.targets[job]
	if known == nil || known.time.IsZero() {
		return Figures{}, time.Time{}, false
	}
	return known.figures, known.time, true
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

func (s *Scraper) scrape(ctx context.Context, job types.NamespacedName) {
	url := s.url(job)
	if url == "" {
		return
	}
	start := s.options.Clock.Now()
	figures, err := s.fetch(ctx, url)
	if s.options.Scraped != nil && ctx.Err() == nil {
		s.options.Scraped(job, s.options.Clock.Since(start), err)
	}
	again, changed := s.record(job, url, figures, err)
	if again > 0 {
		s.queue.AddAfter(job, again)
	}
	if changed && s.options.Changed != nil {
		s.options.Changed(job)
	}
}

func (s *Scraper) url(job types.NamespacedName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.targets[job]; known != nil {
		return known.url
	}
	return ""
}

// record keeps the outcome of a scrape. It returns when to scrape again, 0 for never by this call, and whether the
// figures are news.
func (s *Scraper) record(job types.NamespacedName, url string, figures Figures, err error) (again time.Duration, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.targets[job]
	if known == nil || known.url != url {
		return 0, false
	}
	if err != nil {
		known.failures++
		return min(firstRetry<<min(known.failures-1, 10), s.options.Interval), false
	}
	changed = known.time.IsZero() || !known.figures.Equal(figures)
	known.figures, known.time, known.failures = figures, s.options.Clock.Now(), 0
	return s.options.Interval, changed
}

func (s *Scraper) fetch(ctx context.Context, url string) (Figures, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Figures{}, fmt.Errorf("scrape %s: %w", url, err)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return Figures{}, fmt.Errorf("scrape %s: %w", url, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return Figures{}, fmt.Errorf("scrape %s: answer is %s instead of 200", url, answer.Status)
	}
	return Parse(io.LimitReader(answer.Body, maxBody))
}
