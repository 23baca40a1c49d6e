package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// costFigures are what the status says of the cost of a job, where its nodes carry prices.
func costFigures() perJob {
	total := gauge("trainingjob_cost_total", "What a job has cost so far by the prices of its nodes, as of its status.",
		costOf(func(c *mlv1.CostStatus) string { return c.Total }), "currency")
	total.kind = prometheus.CounterValue
	return perJob{
		total,
		gauge("trainingjob_cost_per_hour", "What the running workers of a job cost per hour.",
			costOf(func(c *mlv1.CostStatus) string { return c.PerHour }), "currency"),
	}
}

func costOf(amount func(*mlv1.CostStatus) string) reading {
	return func(job *mlv1.TrainingJob, _ time.Time) (float64, []string, bool) {
		cost := job.Status.Cost
		if cost == nil {
			return 0, nil, false
		}
		value, err := strconv.ParseFloat(amount(cost), 64)
		return value, []string{cost.Currency}, err == nil
	}
}
