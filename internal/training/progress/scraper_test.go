package progress

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// soon bounds every wait of these tests.
const soon = time.Minute

// worker is a training worker that serves metrics.
type worker struct {
	*httptest.Server

	scrapes atomic.Int64
	mu      sync.Mutex
	answer  func(http.ResponseWriter, *http.Request)
}

func startWorker(t *testing.T) *worker {
	t.Helper()
	w := &worker{}
	w.serve(http.StatusOK, "training_epoch 1\n")
	w.Server = httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		w.mu.Lock()
		answer := w.answer
		w.mu.Unlock()
		answer(response, request)
		w.scrapes.Add(1)
	}))
	t.Cleanup(w.Close)
	return w
}

// serve sets the answer to scrapes from now on.
func (w *worker) serve(code int, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = func(response http.ResponseWriter, _ *http.Request) {
		response.WriteHeader(code)
		_, _ = fmt.Fprint(response, text)
	}
}

// scraped says whether the worker was scraped so many times in all.
func (w *worker) scraped(times int64) func() bool {
	return func() bool { return w.scrapes.Load() >= times }
}

// running is a scraper that runs, with a clock that stands still until it is stepped.
type running struct {
	*Scraper

	clock   *clocktesting.FakeClock
	changed chan types.NamespacedName
}

func startScraper(t *testing.T, options ScraperOptions) *running {
	t.Helper()
	r := &running{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), changed: make(chan types.NamespacedName, 1000)}
	options.Clock, options.Changed = r.clock, func(job types.NamespacedName) { r.changed <- job }
	r.Scraper = NewScraper(options)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(t, err)
		case <-time.After(soon):
			t.Error("the scraper does not end with its context")
		}
	})
	return r
}

// until lets time pass until something has happened, and returns how much passed.
func (r *running) until(t *testing.T, happened func() bool) time.Duration {
	t.Helper()
	start := r.clock.Now()
	require.Eventually(t, func() bool {
		if happened() {
			return true
		}
		r.clock.Step(time.Second)
		return false
	}, soon, time.Millisecond, "it did not happen")
	return r.clock.Since(start)
}

func (r *running) nextChange(t *testing.T) types.NamespacedName {
	t.Helper()
	select {
	case job := <-r.changed:
		return job
	case <-time.After(soon):
		require.FailNow(t, "nothing changed")
		return types.NamespacedName{}
	}
}

// knows waits until the scraper has read an epoch.
func (r *running) knows(t *testing.T, job types.NamespacedName, epoch int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		figures := r.Latest(job).Figures
		return figures != nil && figures.Epoch == epoch
	}, soon, time.Millisecond, "epoch %d was not read", epoch)
}

var bert = types.NamespacedName{Namespace: "a", Name: "bert"}

func TestANewJobIsScrapedAtOnce(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{})
	assert.Nil(t, s.Latest(bert).Figures)

	s.Follow(bert, Target{Metrics: w.URL})

	assert.Equal(t, bert, s.nextChange(t))
	assert.Equal(t, &Figures{Epoch: 1}, s.Latest(bert).Figures)
	assert.Equal(t, s.clock.Now(), s.Latest(bert).Time)
}

func TestOnlyChangedFiguresAreNews(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	s.Follow(bert, Target{Metrics: w.URL})
	s.nextChange(t)

	w.serve(http.StatusOK, "# another order\ntraining_epoch 1\n")
	s.until(t, w.scraped(4))
	assert.Empty(t, s.changed, "the same figures are no change")
	w.serve(http.StatusOK, "training_epoch 2\n")
	s.until(t, func() bool { return len(s.changed) > 0 })

	s.knows(t, bert, 2)
}

func TestScrapesKeepTheirInterval(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	s.Follow(bert, Target{Metrics: w.URL})
	s.nextChange(t)

	passed := s.until(t, func() bool {
		s.Follow(bert, Target{Metrics: w.URL}) // every reconciliation says this again
		return w.scraped(2)()
	})

	assert.GreaterOrEqual(t, passed, 30*time.Second)
}

func TestAFailedScrapeIsTriedAgain(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	w.serve(http.StatusServiceUnavailable, "")
	s.Follow(bert, Target{Metrics: w.URL})
	s.until(t, w.scraped(3))

	w.serve(http.StatusOK, "training_epoch 1\n")
	s.until(t, func() bool { return len(s.changed) > 0 })

	s.knows(t, bert, 1)
}

func TestEveryScrapeIsTold(t *testing.T) {
	w := startWorker(t)
	w.serve(http.StatusInternalServerError, "")
	type attempt struct {
		job    types.NamespacedName
		failed bool
	}
	told := make(chan attempt, 100)
	r := startScraper(t, ScraperOptions{Scraped: func(job types.NamespacedName, _ time.Duration, err error) {
		told <- attempt{job, err != nil}
	}})
	job := types.NamespacedName{Namespace: "a", Name: "bert"}
	r.Follow(job, Target{Metrics: w.URL})
	assert.Equal(t, attempt{job, true}, <-told)
	w.serve(http.StatusOK, "training_epoch 2\n")
	r.until(t, w.scraped(2))
	assert.Equal(t, attempt{job, false}, <-told)
}

func TestRetriesBecomeRarerUpToTheInterval(t *testing.T) {
	s := NewScraper(ScraperOptions{Interval: 30 * time.Second})
	s.Follow(bert, Target{Metrics: "http://x"})
	var pauses []time.Duration
	for range 7 {
		again, changed := s.record(bert, Target{Metrics: "http://x"}, outcome{failed: true})
		assert.False(t, changed)
		pauses = append(pauses, again)
	}
	assert.Equal(t, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}, pauses)

	again, _ := s.record(bert, Target{Metrics: "http://x"}, outcome{figures: &Figures{}})
	assert.Equal(t, 30*time.Second, again)
	again, _ = s.record(bert, Target{Metrics: "http://x"}, outcome{failed: true})
	assert.Equal(t, time.Second, again, "after a success retries start from the first interval")
}

func TestFiguresStayWhenAScrapeFails(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	s.Follow(bert, Target{Metrics: w.URL})
	s.nextChange(t)
	for name, answer := range map[string]func(){
		"an error":           func() { w.serve(http.StatusInternalServerError, "training_epoch 9\n") },
		"no Prometheus text": func() { w.serve(http.StatusOK, "<html>") },
		"more than can be right": func() {
			w.serve(http.StatusOK, "training_epoch 9\n"+strings.Repeat("# "+strings.Repeat("x", 1021)+"\n", maxBody/1024)+"training_loss")
		},
	} {
		before := w.scrapes.Load()
		answer()
		s.until(t, w.scraped(before+2)) // so that the outcome of the first is known
		assert.Equal(t, &Figures{Epoch: 1}, s.Latest(bert).Figures, "after %s", name)
	}
	assert.Empty(t, s.changed)
}

func TestAWorkerCannotSendTheManagerElsewhere(t *testing.T) {
	inside := startWorker(t)
	w, s := startWorker(t), startScraper(t, ScraperOptions{})
	w.mu.Lock()
	w.answer = func(response http.ResponseWriter, request *http.Request) {
		http.Redirect(response, request, inside.URL, http.StatusFound)
	}
	w.mu.Unlock()

	_, err := s.fetch(t.Context(), w.URL)

	assert.ErrorContains(t, err, "302 Found instead of 200")
	assert.Zero(t, inside.scrapes.Load(), "a redirect is not followed")
}

func TestASlowWorkerIsGivenUp(t *testing.T) {
	w := startWorker(t)
	release := make(chan struct{})
	w.mu.Lock()
	w.answer = func(http.ResponseWriter, *http.Request) { <-release }
	w.mu.Unlock()
	defer close(release)

	_, err := NewScraper(ScraperOptions{Timeout: 20 * time.Millisecond}).fetch(t.Context(), w.URL)

	assert.ErrorContains(t, err, "scrape "+w.URL)
}

func TestAJobWithANewAddressIsScrapedAtOnce(t *testing.T) {
	first, second := startWorker(t), startWorker(t)
	second.serve(http.StatusOK, "training_epoch 5\n")
	s := startScraper(t, ScraperOptions{})
	s.Follow(bert, Target{Metrics: first.URL})
	s.knows(t, bert, 1)

	s.Follow(bert, Target{Metrics: second.URL})

	s.knows(t, bert, 5)
	assert.Equal(t, int64(1), first.scrapes.Load())
}

func TestAJobThatIsNoLongerFollowedDropsItsFigures(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	s.Follow(bert, Target{Metrics: w.URL})
	s.nextChange(t)

	s.Follow(bert, Target{})
	s.clock.Step(time.Minute)
	s.Follow(types.NamespacedName{Name: "other"}, Target{Metrics: w.URL}) // scraped after what was due before
	s.nextChange(t)

	assert.Equal(t, int64(2), w.scrapes.Load(), "once for each job")
	assert.Nil(t, s.Latest(bert).Figures, "the figures of an attempt that has ended say nothing of the next")
}

func TestNotToFollowAnUnknownJobIsNothing(t *testing.T) {
	s := NewScraper(ScraperOptions{})
	s.Follow(bert, Target{})
	assert.Empty(t, s.targets)
}

func TestAScrapeThatEndsAfterItsJobIsForgottenIsDropped(t *testing.T) {
	s := NewScraper(ScraperOptions{})
	s.Follow(bert, Target{Metrics: "http://old"})
	s.Follow(bert, Target{Metrics: "http://new"})
	again, changed := s.record(bert, Target{Metrics: "http://old"}, outcome{figures: &Figures{Epoch: 9}})
	assert.Zero(t, again)
	assert.False(t, changed, "figures of an earlier attempt's worker are no change")

	s.Forget(bert)
	_, changed = s.record(bert, Target{Metrics: "http://new"}, outcome{figures: &Figures{Epoch: 9}})
	assert.False(t, changed)
	assert.Nil(t, s.Latest(bert).Figures)
}

func TestNoMoreJobsAreScrapedAtATimeThanThereAreWorkers(t *testing.T) {
	const workers, jobs = 3, 12
	var now, most atomic.Int64
	release := make(chan struct{})
	w := startWorker(t)
	w.mu.Lock()
	w.answer = func(response http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		<-release
		now.Add(-1)
		_, _ = fmt.Fprintln(response, "training_epoch 1")
	}
	w.mu.Unlock()
	s := startScraper(t, ScraperOptions{Workers: workers, Timeout: soon})
	for i := range jobs {
		s.Follow(types.NamespacedName{Name: fmt.Sprint(i)}, Target{Metrics: w.URL})
	}

	require.Eventually(t, func() bool { return now.Load() == workers }, soon, time.Millisecond, "not all workers scrape")
	close(release)

	seen := map[types.NamespacedName]bool{}
	for range jobs {
		seen[s.nextChange(t)] = true
	}
	assert.Len(t, seen, jobs, "every job is scraped in the end")
	assert.Equal(t, int64(workers), most.Load())
}
