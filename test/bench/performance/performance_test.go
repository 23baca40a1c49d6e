package performance_test

import (
	"testing"

	"github.com/dcnlab/spot-training-operator/test/bench/performance"
)

func BenchmarkOperator(b *testing.B) { performance.Measure(b) }
