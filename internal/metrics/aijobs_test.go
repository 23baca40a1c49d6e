package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
)

func TestAIJobsOfEachEndAreCountedFromZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewAIJobs(registry)
	assert.Equal(t, 4, testutil.CollectAndCount(m.completed))
	m.Completed("DeadLetter")
	assert.Equal(t, 4, testutil.CollectAndCount(m.completed))
	assert.InDelta(t, 1, testutil.ToFloat64(m.completed.WithLabelValues("DeadLetter")), 0)
}
