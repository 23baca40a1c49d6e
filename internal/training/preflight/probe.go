package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// viewPath answers with the view of a worker, when the query parameter id is that of the job. A POST lets the worker go.
	viewPath = "/v1/worker"
	// answerTime bounds one probe.
	answerTime = 3 * time.Second
	// maxView bounds how much of a view is read, in bytes.
	maxView = 256 << 10
)

// view is what one worker says of itself.
type view struct {
	// Replica is its index.
	Replica int `json:"replica"`
	// Port is the one that it chose at random.
	Port int `json:"port"`
	// Complete says that it has reached all others.
	Complete bool `json:"complete"`
	// Pairs are those that it has not reached for a while.
	Pairs []Pair `json:"pairs,omitempty"`
}

// problem is why a probe failed.
type problem struct {
	cause  Cause
	detail string
}

// prober asks other workers for their views.
type prober struct {
	id     string
	port   int
	limit  time.Duration // of one probe
	client *http.Client
	lookup func(ctx context.Context, host string) ([]string, error)
}

func newProber(id string, port int) *prober {
	return &prober{
		id: id, port: port, limit: answerTime, lookup: net.DefaultResolver.LookupHost,
		client: &http.Client{
			// Each probe makes a connection of its own: it is what is checked.
			Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// reach asks a worker at the port at which the workers gather, and then at the one that it chose.
func (p *prober) reach(ctx context.Context, replica int, host string) *problem {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	address, failed := p.resolve(ctx, host)
	if failed != nil {
		return failed
	}
	seen, failed := p.ask(ctx, address, p.port, http.MethodGet)
	if failed != nil {
		return failed
	}
	if seen.Replica != replica {
		return &problem{Refused, fmt.Sprintf("%s leads to replica %d", host, seen.Replica)}
	}
	if _, failed = p.ask(ctx, address, seen.Port, http.MethodGet); failed != nil {
		failed.detail += fmt.Sprintf(", although port %d does: collective libraries choose their ports at random, as this one was", p.port)
	}
	return failed
}

// view asks a worker that has been reached for its view, with a POST to let it go.
func (p *prober) view(ctx context.Context, host, method string) (view, *problem) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	address, failed := p.resolve(ctx, host)
	if failed != nil {
		return view{}, failed
	}
	return p.ask(ctx, address, p.port, method)
}

func (p *prober) ask(ctx context.Context, ip string, port int, method string) (seen view, failed *problem) {
	address := net.JoinHostPort(ip, strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+viewPath+"?"+url.Values{"id": {p.id}}.Encode(), nil)
	if err != nil {
		return view{}, &problem{NoAnswer, err.Error()}
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return view{}, p.connectProblem(address, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxView))
	if err != nil {
		return view{}, p.connectProblem(address, err)
	}
	if answer.StatusCode != http.StatusOK || json.Unmarshal(text, &seen) != nil {
		return view{}, &problem{Refused, "another program than the check of this job answers at " + address}
	}
	return seen, nil
}

// resolve returns the first address of a worker.
func (p *prober) resolve(ctx context.Context, host string) (ip string, failed *problem) {
	addresses, err := p.lookup(ctx, host)
	if err == nil && len(addresses) > 0 {
		return addresses[0], nil
	}
	var found *net.DNSError
	if errors.As(err, &found) && !found.IsNotFound {
		return "", &problem{NotResolved, fmt.Sprintf("the name %s cannot be looked up: %s", host, strings.TrimSpace(found.Err+" "+found.Server))}
	}
	return "", &problem{NotResolved, "DNS knows no address of " + host}
}

func (p *prober) connectProblem(address string, err error) *problem {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &problem{Refused, address + " refuses connections"}
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{NoAnswer, fmt.Sprintf("%s does not answer within %s", address, p.limit)}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return &problem{NoAnswer, fmt.Sprintf("%s does not answer: %s", address, err)}
}
