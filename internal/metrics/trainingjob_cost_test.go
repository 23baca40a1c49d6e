package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestCostIsMeasured(t *testing.T) {
	priced := builders.TrainingJob("bert").Status(mlv1.TrainingJobStatus{Cost: &mlv1.CostStatus{Currency: "EUR", Total: "36.72", PerHour: "0"}}).Obj()
	collector := NewTrainingJobStatus(lister{jobs: []*mlv1.TrainingJob{priced, builders.TrainingJob("free").Obj()}}, 10,
		clocktesting.NewFakePassiveClock(builders.Noon))

	assert.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP trainingjob_cost_per_hour What the running workers of a job cost per hour.
# TYPE trainingjob_cost_per_hour gauge
trainingjob_cost_per_hour{currency="EUR",namespace="default",training_job="bert"} 0
# HELP trainingjob_cost_total What a job has cost so far by the prices of its nodes, as of its status.
# TYPE trainingjob_cost_total counter
trainingjob_cost_total{currency="EUR",namespace="default",training_job="bert"} 36.72
`), "trainingjob_cost_per_hour", "trainingjob_cost_total"))
}
