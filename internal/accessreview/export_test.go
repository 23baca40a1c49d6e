package accessreview

// MetricsFilterAt is MetricsFilter with a clock.
var MetricsFilterAt = metricsFilter
