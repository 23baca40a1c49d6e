package webhook_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// BenchmarkCreate is what a creation costs the user, without webhooks and with them:
//
//	go test -run '^$' -bench Create -benchtime 200x ./test/suites/webhook
func BenchmarkCreate(b *testing.B) {
	create := func(b *testing.B) {
		ns := namespace(b)
		times := make([]time.Duration, 0, b.N)
		for i := range b.N {
			job := builders.TrainingJob(fmt.Sprintf("job-%d", i)).Namespace(ns).Workers(4).Checkpoints().ToCreate()
			begin := time.Now()
			require.NoError(b, k8s.Create(b.Context(), job))
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
	}
	b.Run("without", create)
	b.Run("with", func(b *testing.B) {
		serve(b, install(b))
		b.ResetTimer()
		create(b)
	})
}
