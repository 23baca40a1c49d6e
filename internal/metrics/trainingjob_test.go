package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestCounters(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 10)
	m.Created("team-a")
	m.Created("team-a")
	m.Completed("team-a")
	m.Failed("team-a", reasons.OutOfMemory)
	m.Reconciled("team-a", "bert", 2*time.Millisecond, "")
	m.Reconciled("team-a", "bert", 2*time.Second, "Conflict")

	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP trainingjob_completed_total Training jobs that ended, by result: success or failure.
# TYPE trainingjob_completed_total counter
trainingjob_completed_total{namespace="team-a",result="failure"} 1
trainingjob_completed_total{namespace="team-a",result="success"} 1
# HELP trainingjob_created_total Training jobs taken up.
# TYPE trainingjob_created_total counter
trainingjob_created_total{namespace="team-a"} 2
# HELP trainingjob_failed_total Failed training jobs, by reason.
# TYPE trainingjob_failed_total counter
trainingjob_failed_total{namespace="team-a",reason="OutOfMemory"} 1
# HELP trainingjob_reconciliation_errors_total Reconciliations of training jobs that ended with an error, by its type.
# TYPE trainingjob_reconciliation_errors_total counter
trainingjob_reconciliation_errors_total{error_type="Conflict",namespace="team-a",training_job="bert"} 1
# HELP trainingjob_reconciliation_total Reconciliations of training jobs, by result.
# TYPE trainingjob_reconciliation_total counter
trainingjob_reconciliation_total{namespace="team-a",result="error",training_job="bert"} 1
trainingjob_reconciliation_total{namespace="team-a",result="success",training_job="bert"} 1
# HELP trainingjob_reconciliation_duration_seconds Time that a reconciliation of a training job took.
# TYPE trainingjob_reconciliation_duration_seconds histogram
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.001"} 0
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.005"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.025"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.1"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.5"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="2.5"} 2
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="+Inf"} 2
trainingjob_reconciliation_duration_seconds_sum{namespace="team-a",training_job="bert"} 2.002
trainingjob_reconciliation_duration_seconds_count{namespace="team-a",training_job="bert"} 2
`), "trainingjob_completed_total", "trainingjob_created_total", "trainingjob_failed_total", "trainingjob_reconciliation_errors_total",
		"trainingjob_reconciliation_total", "trainingjob_reconciliation_duration_seconds"))
}

func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 3)
	for i := range 100 {
		m.Reconciled("a", fmt.Sprint("job-", i), time.Millisecond, "")
	}
	count := func() int {
		n, err := testutil.GatherAndCount(registry, "trainingjob_reconciliation_total")
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, 4, count(), "three jobs of their own and one series for all others")
	assert.InDelta(t, 97, testutil.ToFloat64(m.reconciliations.WithLabelValues("a", "", "success")), 0)

	m.Forget("a", "job-0")
	assert.Equal(t, 3, count(), "the series of a job that no longer exists are gone")
	m.Reconciled("a", "new", time.Millisecond, "")
	assert.Equal(t, 4, count(), "and its place is free for another")

	m.Forget("a", "job-50")
	assert.Equal(t, 4, count(), "to forget a job without series of its own is nothing")
	m.Forget("a", "new")
	m.Forget("a", "new")
	assert.Equal(t, 3, count())
}

func TestForgettingAJobDropsItsErrorsToo(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 3)
	m.Reconciled("a", "bert", time.Millisecond, "Conflict")
	m.Reconciled("a", "bert", time.Millisecond, "Other")
	m.Scraped("a", "bert", time.Millisecond, true)

	m.Forget("a", "bert")

	left, err := testutil.GatherAndCount(registry, "trainingjob_reconciliation_total", "trainingjob_reconciliation_duration_seconds",
		"trainingjob_reconciliation_errors_total", "trainingjob_scrape_failures_total")
	require.NoError(t, err)
	assert.Zero(t, left)
}

func TestWaitsAndScrapes(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 1)
	m.Admitted("a", -time.Second) // clocks of two machines may differ
	m.Running("a", 2*time.Minute)
	m.Scraped("a", "bert", 2*time.Millisecond, false)
	m.Scraped("a", "bert", 3*time.Second, true)
	m.Scraped("a", "gpt", 2*time.Millisecond, true)

	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP trainingjob_queue_wait_seconds Time from the creation of a training job until it was admitted to its resources.
# TYPE trainingjob_queue_wait_seconds histogram
trainingjob_queue_wait_seconds_bucket{namespace="a",le="1"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="5"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="15"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="60"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="300"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="900"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="3600"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="14400"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="86400"} 1
trainingjob_queue_wait_seconds_bucket{namespace="a",le="+Inf"} 1
trainingjob_queue_wait_seconds_sum{namespace="a"} 0
trainingjob_queue_wait_seconds_count{namespace="a"} 1
# HELP trainingjob_scrape_failures_total Failed attempts to read the figures of a running training job.
# TYPE trainingjob_scrape_failures_total counter
trainingjob_scrape_failures_total{namespace="a",training_job=""} 1
trainingjob_scrape_failures_total{namespace="a",training_job="bert"} 1
# HELP trainingjob_time_to_running_seconds Time from the creation of a training job until all its workers first ran.
# TYPE trainingjob_time_to_running_seconds histogram
trainingjob_time_to_running_seconds_bucket{namespace="a",le="1"} 0
trainingjob_time_to_running_seconds_bucket{namespace="a",le="5"} 0
trainingjob_time_to_running_seconds_bucket{namespace="a",le="15"} 0
trainingjob_time_to_running_seconds_bucket{namespace="a",le="60"} 0
trainingjob_time_to_running_seconds_bucket{namespace="a",le="300"} 1
trainingjob_time_to_running_seconds_bucket{namespace="a",le="900"} 1
trainingjob_time_to_running_seconds_bucket{namespace="a",le="3600"} 1
trainingjob_time_to_running_seconds_bucket{namespace="a",le="14400"} 1
trainingjob_time_to_running_seconds_bucket{namespace="a",le="86400"} 1
trainingjob_time_to_running_seconds_bucket{namespace="a",le="+Inf"} 1
trainingjob_time_to_running_seconds_sum{namespace="a"} 120
trainingjob_time_to_running_seconds_count{namespace="a"} 1
`), "trainingjob_queue_wait_seconds", "trainingjob_time_to_running_seconds", "trainingjob_scrape_failures_total"))
	scrapes, err := testutil.GatherAndCount(registry, "trainingjob_scrape_duration_seconds")
	require.NoError(t, err)
	assert.Equal(t, 1, scrapes, "one histogram for all jobs")
}

// untilNoon is a certificate.
func untilNoon(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &tls.Certificate{Leaf: &x509.Certificate{NotAfter: builders.Noon}}, nil
}

func TestCertificateExpiry(t *testing.T) {
	for _, of := range []func(Serving) prometheus.Collector{NewCertificateExpiry, NewJobServiceCertificateExpiry} {
		none := of(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("there is none yet") })
		assert.Zero(t, testutil.CollectAndCount(none))
		assert.InDelta(t, float64(builders.Noon.Unix()), testutil.ToFloat64(of(untilNoon)), 0)
	}
}

func TestMetricNamesFollowPrometheusConventions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewTrainingJobs(registry, 1)
	m.Created("a")
	m.Failed("a", "b")
	m.Reconciled("a", "b", 0, "c")
	m.Admitted("a", time.Second)
	m.Running("a", time.Second)
	m.Scraped("a", "b", time.Second, true)
	registry.MustRegister(NewCertificateExpiry(untilNoon), NewJobServiceCertificateExpiry(untilNoon))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}
