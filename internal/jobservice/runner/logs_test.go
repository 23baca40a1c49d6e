package runner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

func TestTheNewestPodOfEachMemberIsRead(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"job-a-1-0", "job-a-0-2", "job-a-0-10", "job-a-10-0", "job-a-x-0", "other"} {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var names []string
	for _, m := range newest("job-a", pods) {
		names = append(names, m.pod.Name)
	}
	assert.Equal(t, []string{"job-a-0-10", "job-a-1-0", "job-a-10-0"}, names)
}

func TestLines(t *testing.T) {
	const stamp = "2026-01-02T03:04:05.123456789Z"
	l := parse(3, stamp+" epoch 1 of 2")
	assert.Equal(t, "epoch 1 of 2\n", l.text(false, false))
	assert.Equal(t, stamp+" epoch 1 of 2\n", l.text(false, true))
	assert.Equal(t, stamp+" [3] epoch 1 of 2\n", l.text(true, true))
	assert.Equal(t, "[3] epoch 1 of 2\n", l.text(true, false))
	odd := parse(0, "unable to retrieve container logs")
	assert.Equal(t, "unable to retrieve container logs\n", odd.text(false, true), "what is no log line stays as it is")
	empty := parse(0, stamp+" ")
	assert.Equal(t, "\n", empty.text(false, false))
}

// A program that never ends a line must not fill the service's memory.
func TestLongLinesAreCut(t *testing.T) {
	var lengths []int
	text := strings.Repeat("x", 2*longestLine+10) + "\nlast"
	require.NoError(t, eachLine(strings.NewReader(text), func(line string) error {
		lengths = append(lengths, len(line))
		return nil
	}))
	assert.Equal(t, []int{longestLine, longestLine, 10, 4}, lengths)
}

func TestLogsOfJobsWithoutPods(t *testing.T) {
	w := newWorld(t)
	job := w.job()
	job.ID, job.Status = "none", jobs.Queued
	read := func(options rest.LogOptions) string {
		lines, err := w.cluster.Logs(t.Context(), *job, options)
		require.NoError(t, err)
		var text strings.Builder
		require.NoError(t, lines(t.Context(), func(line string) error {
			text.WriteString(line)
			return nil
		}))
		return text.String()
	}
	assert.Empty(t, read(rest.LogOptions{Tail: 100}), "it has not begun")

	job.Status, job.CompletedAt, job.Error = jobs.Failed, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "exit code 3"
	text := read(rest.LogOptions{Tail: 100, Follow: true})
	assert.Contains(t, text, "The pods of this job are gone, and with them their logs. The job has ended as failed at 2026-01-02T03:04:05Z.")
	assert.Contains(t, text, "Error: exit code 3")
}

// Following does not go on when its reader has gone.
func TestFollowingEndsWithItsReader(t *testing.T) {
	w := newWorld(t)
	job := w.job()
	job.ID, job.Status = "none", jobs.Queued
	lines, err := w.cluster.Logs(t.Context(), *job, rest.LogOptions{Tail: 100, Follow: true})
	require.NoError(t, err)
	gone, leave := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- lines(gone, func(string) error { return errors.New("nothing was written") })
	}()
	leave()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it still follows")
	}
}
