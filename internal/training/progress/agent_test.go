package progress

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// agent is a checkpoint agent that takes requests for checkpoints.
type agent struct {
	*httptest.Server

	mu       sync.Mutex
	answer   report.Report
	refusals int
	asked    []string
}

func startAgent(t *testing.T, answer report.Report) *agent {
	t.Helper()
	a := &agent{answer: answer}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+report.StatusPath, func(response http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		_ = json.NewEncoder(response).Encode(a.answer)
	})
	mux.HandleFunc("POST "+report.RequestPath, func(response http.ResponseWriter, request *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.refusals > 0 {
			a.refusals--
			response.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		id := request.URL.Query().Get("id")
		a.asked = append(a.asked, id)
		a.answer.Request = &report.Request{ID: id, State: report.RequestPending}
		response.WriteHeader(http.StatusAccepted)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// say sets the answer from now on.
func (a *agent) say(change func(*report.Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.answer)
}

func (a *agent) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.asked...)
}

func syncing(epoch int32) report.Report {
	return report.Report{Phase: report.PhaseSyncing, Newest: &report.Checkpoint{Path: "/c", Epoch: epoch}, Kept: 1}
}

// reports waits until the scraper has read a report that the check accepts.
func (r *running) reports(t *testing.T, check func(*report.Report) bool) time.Duration {
	t.Helper()
	return r.until(t, func() bool {
		read := r.Latest(bert).Report
		return read != nil && check(read)
	})
}

func TestWorkerAndAgentAreReadInOneCycle(t *testing.T) {
	w, a, s := startWorker(t), startAgent(t, syncing(3)), startScraper(t, ScraperOptions{Interval: 30 * time.Second})

	s.Follow(bert, Target{Metrics: w.URL, Agent: a.URL})

	s.nextChange(t)
	read := s.Latest(bert)
	require.NotNil(t, read.Report)
	assert.Equal(t, int32(3), read.Report.Newest.Epoch)
	assert.Equal(t, a.URL, read.Agent)
	s.knows(t, bert, 1)
	assert.Empty(t, s.changed, "what both brought is told once")

	a.say(func(r *report.Report) { r.UploadedBytes = 4096 })
	s.until(t, w.scraped(3))
	assert.Empty(t, s.changed, "how much was sent is no change")

	a.say(func(r *report.Report) { r.Newest.Epoch = 4 })
	passed := s.reports(t, func(r *report.Report) bool { return r.Newest.Epoch == 4 })
	assert.Less(t, passed, 60*time.Second, "the next interval brings it, not one after that")
	s.nextChange(t)
}

func TestAnAgentIsReadBeforeAndAlthoughItsWorkerAnswersNothing(t *testing.T) {
	w, s := startWorker(t), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	w.serve(http.StatusNotFound, "")
	a := startAgent(t, report.Report{Phase: report.PhaseRestoring})
	s.Follow(bert, Target{Agent: a.URL})
	s.reports(t, func(r *report.Report) bool { return r.Phase == report.PhaseRestoring })

	a.say(func(r *report.Report) { r.Phase = report.PhaseSyncing })
	s.Follow(bert, Target{Metrics: w.URL, Agent: a.URL})

	assert.NotNil(t, s.Latest(bert).Report, "the agent is the same")
	s.reports(t, func(r *report.Report) bool { return r.Phase == report.PhaseSyncing })

	s.Follow(bert, Target{Metrics: w.URL, Agent: "http://127.0.0.1:1"})
	assert.Nil(t, s.Latest(bert).Report, "another agent's report says nothing of this one")
}

func TestTheCheckOfTheNetworkIsReadWhileItGoesOn(t *testing.T) {
	var mu sync.Mutex
	answer := preflight.Report{Pairs: []preflight.Pair{{From: 1, Cause: preflight.NoAnswer, Detail: "no answer"}}}
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if request.URL.Path == preflight.ReportPath {
			_ = json.NewEncoder(response).Encode(answer)
		}
	}))
	t.Cleanup(server.Close)
	s := startScraper(t, ScraperOptions{Interval: 30 * time.Second})

	s.Follow(bert, Target{Network: server.URL})

	s.nextChange(t)
	assert.Equal(t, answer.Pairs, s.Latest(bert).Reached.Pairs)
	mu.Lock()
	answer.Pairs = nil
	mu.Unlock()
	passed := s.until(t, func() bool { return len(s.Latest(bert).Reached.Pairs) == 0 })
	assert.Less(t, passed, 10*time.Second, "it is asked again soon")
	s.Follow(bert, Target{Network: "http://127.0.0.1:1"})
	assert.Nil(t, s.Latest(bert).Reached, "another attempt's report says nothing of this one")
}

func TestACheckpointIsAskedForUntilItIsThere(t *testing.T) {
	a, s := startAgent(t, syncing(3)), startScraper(t, ScraperOptions{Interval: 30 * time.Second})
	a.refusals = 2
	s.Follow(bert, Target{Agent: a.URL})
	s.nextChange(t)

	s.Follow(bert, Target{Agent: a.URL, Request: "tonight & now"})

	s.reports(t, func(r *report.Report) bool { return r.Request != nil && r.Request.ID == "tonight & now" })
	a.say(func(r *report.Report) { r.Request.State = report.RequestDone })
	passed := s.reports(t, func(r *report.Report) bool { return r.Request.State == report.RequestDone })
	assert.Less(t, passed, 30*time.Second, "the outcome does not wait for the next interval")
	assert.Equal(t, []string{"tonight & now"}, a.requests(), "it was asked for once")
}

func TestHowSoonAnAgentIsAskedAgainWhatBecameOfARequest(t *testing.T) {
	pending := report.Report{Phase: report.PhaseSyncing, Request: &report.Request{ID: "now", State: report.RequestPending}}
	done := report.Report{Phase: report.PhaseSyncing, Request: &report.Request{ID: "now", State: report.RequestDone}}
	for name, test := range map[string]struct {
		target Target
		said   report.Report
		failed bool
		again  time.Duration
	}{
		"nothing was asked":         {Target{Agent: "a"}, syncing(3), false, 30 * time.Second},
		"a request":                 {Target{Agent: "a", Request: "now"}, pending, false, 2 * time.Second},
		"an urgent one":             {Target{Agent: "a", Request: "now", Urgent: true}, pending, false, 200 * time.Millisecond},
		"an urgent one went astray": {Target{Agent: "a", Request: "now", Urgent: true}, syncing(3), true, 200 * time.Millisecond},
		"it is done":                {Target{Agent: "a", Request: "now", Urgent: true}, done, false, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewScraper(ScraperOptions{Interval: 30 * time.Second})
			s.Follow(bert, test.target)
			again, _ := s.record(bert, test.target, outcome{report: &test.said, failed: test.failed})
			assert.Equal(t, test.again, again)
		})
	}
}

func TestNoCheckpointIsAskedForWhileOneIsRestored(t *testing.T) {
	a, s := startAgent(t, report.Report{Phase: report.PhaseRestoring}), startScraper(t, ScraperOptions{Interval: 30 * time.Second})

	s.Follow(bert, Target{Agent: a.URL, Request: "early"})
	s.nextChange(t)
	assert.Empty(t, a.requests())

	a.say(func(r *report.Report) { r.Phase = report.PhaseSyncing })
	s.until(t, func() bool { return len(a.requests()) == 1 })
}

func TestAnAnswerThatIsNoReportIsAnError(t *testing.T) {
	w := startWorker(t)
	w.serve(http.StatusOK, `{"hello": "world"}`)
	_, err := NewScraper(ScraperOptions{}).askAgent(t.Context(), Target{Agent: w.URL})
	assert.ErrorContains(t, err, "is no report")
	w.serve(http.StatusInternalServerError, "")
	_, err = NewScraper(ScraperOptions{}).askAgent(t.Context(), Target{Agent: w.URL})
	assert.ErrorContains(t, err, "instead of 200")
}
