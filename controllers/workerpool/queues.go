package workerpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// answerTime is how long the job service may take.
	answerTime = 5 * time.Second
	// answerBytes bounds what is read of an answer.
	answerBytes = 64 << 20
)

// JobService tells the depths of its queues.
type JobService struct {
	// URL of the service, without a path of the API.
	URL string
	// Token for it.
	Token func(context.Context) (string, error)
}

// Queues returns the tasks for pooled workers of each queue. An error's text has nothing that differs from one try to the next.
func (s *JobService) Queues(ctx context.Context) (map[string]Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	token, err := s.Token(ctx)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.URL, "/")+"/api/v1/queues/", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("--job-service-url: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", s.URL, plainly(err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	if err != nil {
		return nil, fmt.Errorf("%s breaks off its answer: %w", s.URL, plainly(err))
	}
	if response.StatusCode != http.StatusOK {
		return nil, refusal(s.URL, response.StatusCode, body)
	}
	return parse(s.URL, body)
}

// plainly leaves out the ports of this side, which are others each time.
func plainly(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %s", answerTime)
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Errorf("the name %s cannot be found", dns.Name)
	}
	var operation *net.OpError
	if errors.As(err, &operation) {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	return err
}

func refusal(service string, status int, body []byte) error {
	var document struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &document)
	return fmt.Errorf("%s answers %d %s: %s", service, status, document.Error.Code, document.Error.Message)
}

func parse(service string, body []byte) (map[string]Figures, error) {
	var document struct {
		Queues []struct {
			Name           string `json:"name"`
			PoolDepth      *int32 `json:"pool_depth"`
			PoolProcessing *int32 `json:"pool_processing"`
		} `json:"queues"`
	}
	if err := json.Unmarshal(body, &document); err != nil || document.Queues == nil {
		return nil, fmt.Errorf("%s answers with something else than a list of queues: is it the job service?", service)
	}
	queues := make(map[string]Figures, len(document.Queues))
	for _, q := range document.Queues {
		if q.PoolDepth == nil || q.PoolProcessing == nil {
			return nil, fmt.Errorf("%s does not tell pool_depth and pool_processing of queue %s: is its version the operator's?", service, q.Name)
		}
		queues[q.Name] = Figures{Waiting: *q.PoolDepth, Running: *q.PoolProcessing}
	}
	return queues, nil
}
