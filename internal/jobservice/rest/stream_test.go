package rest_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// follow the log of a job; the lines come one by one.
func (s *service) follow(ctx context.Context, t *testing.T, id string) *bufio.Scanner {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/v1/jobs/"+id+"/logs?follow=true&timestamps=false", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token(t, all))
	answer, err := client.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	return bufio.NewScanner(answer.Body)
}

func expect(t *testing.T, lines *bufio.Scanner, want ...string) {
	t.Helper()
	for _, line := range want {
		for lines.Scan() && lines.Text() == "" {
			continue
		}
		require.Contains(t, lines.Text(), line)
	}
}

func TestFollowingAPooledJob(t *testing.T) {
	s := newService(t, newMemory())
	id := s.submit(t, all, `{"job_type":"inference"}`)
	lines := s.follow(t.Context(), t, id)
	expect(t, lines, "data: submitted by alice to queue inference")
	task, fence := s.lease(t, "inference")
	require.Equal(t, id, task)
	expect(t, lines, "data: started by worker w-1")
	_, err := s.store.Fail(t.Context(), id, fence, jobs.Failure{Message: "first line\nsecond line", Retryable: false})
	require.NoError(t, err)
	expect(t, lines, "data: ended as failed: first line", "data:   second line", "event: end", `data: {"status":"failed"}`)
	assert.False(t, lines.Scan() && lines.Text() != "", "the stream ends with the job")
}

// A log in which nothing comes for long is looked at hundreds of times, and still followed.
func TestFollowingAJobThatWaits(t *testing.T) {
	s := newService(t, newMemory(), func(o *rest.Options) { o.LogInterval = time.Millisecond })
	id := s.submit(t, all, `{"job_type":"inference","queue":"idle"}`)
	lines := s.follow(t.Context(), t, id)
	expect(t, lines, "data: submitted by alice to queue idle")
	time.Sleep(400 * time.Millisecond)
	_, err := s.store.Cancel(t.Context(), id, "")
	require.NoError(t, err)
	expect(t, lines, "data: ended as cancelled", "event: end", `data: {"status":"cancelled"}`)
}

// A server that shuts down ends streams and waiting workers at once.
func TestShutdown(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := newService(t, newMemory(), func(o *rest.Options) { o.Context = ctx })
	lines := s.follow(t.Context(), t, s.submit(t, all, `{"job_type":"inference","queue":"idle"}`))
	expect(t, lines, "data: submitted")
	leased := make(chan answer, 1)
	go func() {
		leased <- s.send(t, "POST", "/api/v1/tasks/lease", all, `{"queue":"empty","worker_id":"w","wait_seconds":30}`)
	}()
	time.AfterFunc(50*time.Millisecond, stop)
	for lines.Scan() {
		assert.Empty(t, lines.Text())
	}
	select {
	case a := <-leased:
		assert.Equal(t, `{"tasks":[]}`, strings.TrimSpace(string(a.body)))
	case <-time.After(10 * time.Second):
		t.Fatal("the worker still waits")
	}
	assert.Equal(t, http.StatusServiceUnavailable, s.send(t, "GET", "/api/v1/health/ready", noToken, "").status)
}

// A worker that waits gets the task when it comes.
func TestWaitingForATask(t *testing.T) {
	s := newService(t, newMemory())
	leased := make(chan answer, 1)
	go func() {
		leased <- s.send(t, "POST", "/api/v1/tasks/lease", all, `{"queue":"inference","worker_id":"w","wait_seconds":30}`)
	}()
	id := s.submit(t, all, `{"job_type":"inference","config":{"n":1},"timeout_seconds":9,"resources":{"gpu":1}}`)
	task := (<-leased).json(t)["tasks"].([]any)[0].(map[string]any)
	assert.Equal(t, id, task["id"])
	assert.Equal(t, map[string]any{"n": 1.0}, task["config"])
	assert.Equal(t, 9.0, task["timeout_seconds"])
	assert.Equal(t, 60.0, task["visibility_timeout_seconds"])
}

func TestAudit(t *testing.T) {
	store := newMemory()
	s := newService(t, store, func(o *rest.Options) { o.Log = logr.Discard() })
	id := s.submit(t, all, `{"job_type":"inference"}`)
	s.send(t, "DELETE", "/api/v1/jobs/"+id, all, "", "X-Request-ID", "the-cancel")
	s.send(t, "POST", "/api/v1/jobs/", all, `{"job_type":"inference","namespace":"team-b"}`)
	s.send(t, "POST", "/api/v1/jobs/batch", other, `{"jobs":[{"job_type":"inference"},{"job_type":"inference"},{"job_type":"inference"}]}`)
	handler := s.Config.Handler.(*rest.Handler)
	s.Close()
	handler.Wait()
	count := map[string]int{}
	for _, entry := range store.audits {
		switch entry.Action {
		case "jobs.create":
			var n int
			if entry.Message == "" {
				n = 1
			} else {
				_, err := fmt.Sscan(entry.Message, &n)
				require.NoError(t, err)
			}
			count[entry.User+" creates in "+entry.Namespace] += n
		case "jobs.cancel":
			assert.Equal(t, jobs.AuditEntry{Time: entry.Time, User: "alice", Action: "jobs.cancel", Namespace: "team-a", JobID: id, RequestID: "the-cancel", Status: 200}, entry)
			count["cancel"]++
		default:
			assert.Equal(t, "denied POST /jobs/", entry.Action)
			assert.Equal(t, 403, entry.Status)
			assert.Contains(t, entry.Message, "team-b")
			count["denied"]++
		}
	}
	assert.Equal(t, map[string]int{"alice creates in team-a": 1, "cancel": 1, "denied": 1, "bob creates in team-b": 3}, count)
}
