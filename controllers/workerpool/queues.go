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
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// Authorities of its certificate, as in Settings.
	Authorities func() (bundle string, known bool)

	trusting trusting
}

// Queues returns the tasks for pooled workers of each queue. An error's text has nothing that differs from one try to the next.
func (s *JobService) Queues(ctx context.Context) (map[string]Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	client, err := s.trusting.client(s.Authorities)
	if err != nil {
		return nil, err
	}
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
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", s.URL, plainly(err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	if err != nil {
		return nil, fmt.Errorf("%s breaks off its answer: %w", s.URL, plainly(err))
	}
	return parse(s.URL, response.StatusCode, body)
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

func parse(service string, status int, body []byte) (map[string]Figures, error) {
	var document struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
		Queues []struct {
			Name           string `json:"name"`
			PoolDepth      *int32 `json:"pool_depth"`
			PoolProcessing *int32 `json:"pool_processing"`
		} `json:"queues"`
	}
	err := json.Unmarshal(body, &document)
	switch {
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d %s: %s", service, status, document.Error.Code, document.Error.Message)
	case err != nil || document.Queues == nil:
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

// ManagerName is the name of the manager's ServiceAccount, whose token the manager asks for.
const ManagerName = "spot-training-operator-controller-manager"

// tokens asks the API server for tokens of the manager's own ServiceAccount that are good for the job service only, so that what the
// manager may do in the cluster is never sent to it.
type tokens struct {
	client    client.SubResourceClientConstructor
	namespace string
	clock     clock.PassiveClock

	lock  sync.Mutex
	token string
	renew time.Time
}

// get returns a token with at least a fifth of its lifetime left.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.token != "" && t.clock.Now().Before(t.renew) {
		return t.token, nil
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = t.namespace, ManagerName
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{Audience}, ExpirationSeconds: ptr.To[int64](tokenSeconds),
	}}
	if err := t.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", t.namespace, ManagerName, err)
	}
	now := t.clock.Now()
	t.token, t.renew = request.Status.Token, now.Add(request.Status.ExpirationTimestamp.Sub(now)*4/5)
	return t.token, nil
}
