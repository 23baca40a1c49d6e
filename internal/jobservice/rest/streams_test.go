package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// silent is a cluster that has nothing of the job, and so no end of its log.
type silent struct{ cluster }

func (*silent) Logs(context.Context, jobs.Job, rest.LogOptions) (rest.Lines, error) {
	return func(ctx context.Context, _ func(string) error) error {
		<-ctx.Done()
		return ctx.Err()
	}, nil
}

func TestFollowingAJobThatEndsBeforeItHasPods(t *testing.T) {
	s := newService(t, newMemory(), func(o *rest.Options) { o.Kubernetes, o.KeepAlive = &silent{}, 20*time.Millisecond })
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	id := s.submit(t, all, `{"job_type":"inference","image":"registry.example.com/m:v1"}`)
	lines := s.follow(ctx, t, id)
	expect(t, lines, ": still there")
	require.Equal(t, http.StatusOK, s.send(t, "DELETE", "/api/v1/jobs/"+id, all, "").status)
	for lines.Scan() && lines.Text() != "event: end" {
		require.Contains(t, ": still there", lines.Text())
	}
	expect(t, lines, `data: {"status":"cancelled"}`)
}

func TestOneUserCannotFollowAllLogs(t *testing.T) {
	s := newService(t, newMemory())
	id := s.submit(t, all, `{"job_type":"inference","queue":"idle"}`)
	const path = "/api/v1/jobs/%s/logs?follow=true"
	ctx, stop := context.WithCancel(t.Context())
	for range 50 {
		s.follow(ctx, t, id)
	}
	a := s.send(t, "GET", fmt.Sprintf(path, id), all, "")
	require.Equal(t, http.StatusTooManyRequests, a.status)
	code, _, message := a.problem(t)
	assert.Equal(t, "RATE_LIMITED", code)
	assert.Contains(t, message, "you follow 50 logs already")
	assert.Equal(t, "10", a.header.Get("Retry-After"))
	assert.Equal(t, http.StatusOK, s.send(t, "GET", "/api/v1/jobs/"+id+"/logs", all, "").status, "what does not follow is not counted")
	assert.Equal(t, http.StatusOK, s.send(t, "GET", "/api/v1/jobs/"+id+"/logs", admin, "").status)

	stop()
	_, err := s.store.Cancel(t.Context(), id, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return s.send(t, "GET", fmt.Sprintf(path, id), all, "").status == http.StatusOK
	}, time.Minute, 20*time.Millisecond, "what has ended is not counted")
}
