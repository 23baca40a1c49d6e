package runner

import (
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientrest "k8s.io/client-go/rest"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

func TestOfManyLinesTheNewestAreKept(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	made := func(index int, seconds ...int) (lines []line) {
		for _, second := range seconds {
			lines = append(lines, line{index: index, time: start.Add(time.Duration(second) * time.Second), content: fmt.Sprintf("%08d", second)})
		}
		return lines
	}
	seconds := func(lines []line) (all []int) {
		for _, l := range lines {
			all = append(all, int(l.time.Sub(start).Seconds()))
		}
		return all
	}
	kept := newestLines(append(made(0, 1, 4, 7), made(1, 2, 3, 9)...), 4, 1000)
	assert.Equal(t, []int{3, 4, 7, 9}, seconds(kept))
	assert.LessOrEqual(t, cap(kept), 6, "the others are not held by it")
	kept = newestLines(append(kept, made(2, 5, 8)...), 4, 24)
	assert.Equal(t, []int{7, 8, 9}, seconds(kept), "no more bytes than the limit")
	assert.Equal(t, []int{7, 8, 9}, seconds(newestLines(kept, 4, 24)), "all when they are few")
}

// stub is an API server that answers with fixed text. The Cluster needs no other part of one here.
func stub(t *testing.T, options Options, handle nethttp.HandlerFunc) *Cluster {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	cluster, err := NewCluster(&clientrest.Config{Host: server.URL}, options)
	require.NoError(t, err)
	return cluster
}

func runningPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}},
	}
}

// However many ask for logs, few are read at the same time, because each may be long.
func TestFewLogsAreReadAtTheSameTime(t *testing.T) {
	var now, most atomic.Int32
	c := stub(t, Options{QPS: -1}, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			continue
		}
		time.Sleep(5 * time.Millisecond)
		name := strings.Split(r.URL.Path, "/")[6]
		fmt.Fprintf(w, "2026-01-02T03:04:05Z an old line of %s\n2026-01-02T03:04:06Z %s\n", name, name)
	})
	var pods []member
	for i := range 60 {
		pods = append(pods, member{index: i, pod: runningPod(fmt.Sprintf("job-%d-0", i))})
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			text, err := c.readLogs(t.Context(), &jobs.Job{}, pods, rest.LogOptions{Tail: 60})
			assert.NoError(t, err)
			assert.Equal(t, 60, strings.Count(text, "\n"))
			assert.NotContains(t, text, "old")
		})
	}
	group.Wait()
	assert.LessOrEqual(t, most.Load(), int32(logPods))

	// Who has gone does not wait for a turn.
	for range logPods {
		c.logSlots <- struct{}{}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := c.readLogs(gone, &jobs.Job{}, pods, rest.LogOptions{Tail: 60})
	assert.ErrorIs(t, err, jobs.ErrUnavailable)
}

// Other requests to the API server do not delay reviews of tokens.
func TestTokensAreReviewedWhateverElseIsAsked(t *testing.T) {
	c := stub(t, Options{QPS: 0.01, Burst: 1}, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if !strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			return
		}
		review := authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{Audience}, User: authenticationv1.UserInfo{Username: "ann"}}
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(review))
	})
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	_, err := c.podLines(ctx, member{pod: runningPod("job-0-0")}, 1)
	require.NoError(t, err)
	user, ok, err := c.Review(ctx, "token")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "ann", user.Username)
}
