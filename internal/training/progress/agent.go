package progress

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// requestPoll is how often an agent is asked for the outcome of a request for a checkpoint.
	requestPoll = 2 * time.Second
	// urgentPoll is the same while a node is about to go.
	urgentPoll = 200 * time.Millisecond
	// networkPoll is how often replica 0 is asked while the workers check the network.
	networkPoll = 2 * time.Second
	// maxReport bounds how much of an agent's report is read, in bytes.
	maxReport = 64 << 10
)

// askAgent reads the report of a checkpoint agent, and asks it for the checkpoint that the target names unless it knows
// of that request. The agent takes the same id again for the same request, so that a lost answer does no harm.
func (s *Scraper) askAgent(ctx context.Context, at Target) (*report.Report, error) {
	text, err := s.call(ctx, http.MethodGet, at.Agent+report.StatusPath, http.StatusOK, maxReport)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", at.Agent, err)
	}
	read, ok := report.Parse(text)
	if !ok {
		return nil, fmt.Errorf("ask %s: the answer is no report", at.Agent)
	}
	if at.Request == "" || read.Phase != report.PhaseSyncing || read.Request != nil && read.Request.ID == at.Request {
		return &read, nil
	}
	_, err = s.call(ctx, http.MethodPost, at.Agent+report.RequestPath+"?id="+url.QueryEscape(at.Request), http.StatusAccepted, 0)
	if err != nil {
		err = fmt.Errorf("ask %s for a checkpoint: %w", at.Agent, err)
	}
	return &read, err
}

// askNetwork reads which workers do not reach one another.
func (s *Scraper) askNetwork(ctx context.Context, at Target) (*preflight.Report, error) {
	text, err := s.call(ctx, http.MethodGet, at.Network+preflight.ReportPath, http.StatusOK, maxReport)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", at.Network, err)
	}
	var read preflight.Report
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("ask %s: the answer is no report: %w", at.Network, err)
	}
	return &read, nil
}

// call returns at most so many bytes of the answer to a request, which must have the status.
func (s *Scraper) call(ctx context.Context, method, address string, status int, most int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != status {
		return nil, fmt.Errorf("answer is %s instead of %d", answer.Status, status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, most))
}

// poll is how soon the agent is asked again: in the interval, or sooner while it has not reported the outcome of the request.
func (r *Reading) poll(interval time.Duration) time.Duration {
	pending := r.Report == nil || r.Report.Request == nil || r.Report.Request.ID != r.Request || r.Report.Request.State == report.RequestPending
	switch {
	case r.Network != "":
		return min(networkPoll, interval)
	case r.Request == "" || !pending:
		return interval
	case r.Urgent:
		return min(urgentPoll, interval)
	}
	return min(requestPoll, interval)
}

// sameNews says whether two reports tell the same but for how much was sent, which changes all the time.
func sameNews(a, b report.Report) bool {
	a.UploadedBytes, a.ReusedBytes, b.UploadedBytes, b.ReusedBytes = 0, 0, 0, 0
	return reflect.DeepEqual(a, b)
}
