package metrics

import "github.com/prometheus/client_golang/prometheus"

// ForgetNamespace drops the series of a namespace that no longer exists. Until then its counters stay, also when it has no job.
func (m *TrainingJobs) ForgetNamespace(namespace string) {
	forgetNamespace(namespace, m.reconciliations.MetricVec, m.errors.MetricVec, m.created.MetricVec, m.completed.MetricVec, m.failed.MetricVec,
		m.scrapeFailures.MetricVec, m.durations.MetricVec, m.queueWait.MetricVec, m.timeToRunning.MetricVec)
}

// ForgetNamespace drops the series of a namespace that no longer exists.
func (m *SpotInstanceJobs) ForgetNamespace(namespace string) {
	forgetNamespace(namespace, m.requested.MetricVec, m.completed.MetricVec, m.answers.MetricVec)
}

func forgetNamespace(namespace string, families ...*prometheus.MetricVec) {
	for _, family := range families {
		family.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	}
}
