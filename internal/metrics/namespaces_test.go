package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlyTheSeriesOfANamespaceThatIsGoneAreDropped(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	trainings, spots := NewTrainingJobs(registry, 1), NewSpotInstanceJobs(registry)
	count := func() (series int) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			series += len(family.GetMetric())
		}
		return series
	}
	empty := count()
	happen := func(namespace string) {
		for _, job := range []string{"bert", "gpt"} { // the second has no series of its own
			trainings.Reconciled(namespace, job, time.Second, "Conflict")
			trainings.Scraped(namespace, job, time.Second, true)
		}
		trainings.Created(namespace)
		trainings.Completed(namespace)
		trainings.Failed(namespace, "DeadlineExceeded")
		trainings.Admitted(namespace, time.Second)
		trainings.Running(namespace, time.Second)
		spots.CheckpointRequested(namespace, true)
		spots.CheckpointCompleted(namespace)
		spots.NoticeAnswered(namespace, time.Second)
	}
	happen("stays")
	before := count()
	happen("gone")
	require.Greater(t, count(), before)

	trainings.ForgetNamespace("gone")
	spots.ForgetNamespace("gone")
	assert.Equal(t, before, count())
	trainings.ForgetNamespace("stays")
	spots.ForgetNamespace("stays")
	assert.Equal(t, empty, count())
}
