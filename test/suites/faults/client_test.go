package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// client speaks REST with the replicas of the service, with any of them. It neither retries nor waits.
type client struct {
	urls  []string
	token string
	http  *http.Client
}

func newClient(urls []string, token string, timeout time.Duration) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	return &client{urls: urls, token: token, http: &http.Client{Timeout: timeout, Transport: transport}}
}

// refusal is an answer that is no success.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.status, r.body) }

// call sends a request and reads the answer into it. Errors are refusals, or say that nothing is known.
func (c *client) call(ctx context.Context, method, path string, request, answer any) error {
	var body io.Reader
	if request != nil {
		content, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(content)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.urls[rand.IntN(len(c.urls))]+"/api/v1"+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if request != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return &refusal{response.StatusCode, string(content)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}
