package rest

import (
	"time"
)

func (s *service) getMetrics(c *call) ([]byte, error) {
	m, err := s.Store.Metrics(c.Context())
	answer := begin(nil).object("jobs").integer("submitted_24h", m.Submitted).integer("completed_24h", m.Completed).integer("failed_24h", m.Failed)
	// Before any job has ended there is no rate.
	if ended := m.Completed + m.Failed; ended > 0 {
		answer = answer.number("success_rate", float64(m.Completed)/float64(ended))
	} else {
		answer = answer.json("success_rate", null)
	}
	answer = answer.end().object("latency").
		number("dispatch_p50_ms", milliseconds(m.DispatchP50)).number("dispatch_p99_ms", milliseconds(m.DispatchP99)).
		number("execution_p50_seconds", m.ExecutionP50.Seconds()).number("execution_p99_seconds", m.ExecutionP99.Seconds()).end().
		object("throughput").number("submitted_per_second", m.SubmittedPerSecond).number("completed_per_second", m.PerSecond).end()
	return answer.end(), err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
