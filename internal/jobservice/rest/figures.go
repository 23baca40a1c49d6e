package rest

import (
	"net/http"
	"time"
)

type metricsAnswer struct {
	Jobs struct {
		Submitted   int      `json:"submitted_24h"`
		Completed   int      `json:"completed_24h"`
		Failed      int      `json:"failed_24h"`
		SuccessRate *float64 `json:"success_rate"`
	} `json:"jobs"`
	Latency struct {
		DispatchP50Ms  float64 `json:"dispatch_p50_ms"`
		DispatchP99Ms  float64 `json:"dispatch_p99_ms"`
		ExecutionP50Ss float64 `json:"execution_p50_seconds"`
		ExecutionP99Ss float64 `json:"execution_p99_seconds"`
	} `json:"latency"`
	Throughput struct {
		SubmittedPerSecond float64 `json:"submitted_per_second"`
		CompletedPerSecond float64 `json:"completed_per_second"`
	} `json:"throughput"`
}

func (s *service) getMetrics(c *call) error {
	m, err := s.Store.Metrics(c.Context())
	if err != nil {
		return err
	}
	var answer metricsAnswer
	answer.Jobs.Submitted, answer.Jobs.Completed, answer.Jobs.Failed = m.Submitted, m.Completed, m.Failed
	// Before any job has ended there is no rate.
	if ended := m.Completed + m.Failed; ended > 0 {
		rate := float64(m.Completed) / float64(ended)
		answer.Jobs.SuccessRate = &rate
	}
	answer.Latency.DispatchP50Ms, answer.Latency.DispatchP99Ms = milliseconds(m.DispatchP50), milliseconds(m.DispatchP99)
	answer.Latency.ExecutionP50Ss, answer.Latency.ExecutionP99Ss = m.ExecutionP50.Seconds(), m.ExecutionP99.Seconds()
	answer.Throughput.SubmittedPerSecond, answer.Throughput.CompletedPerSecond = m.SubmittedPerSecond, m.PerSecond
	return c.answerValue(http.StatusOK, answer)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
