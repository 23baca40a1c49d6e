package progress

import (
	"fmt"
	"io"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxMetrics bounds how many named metrics of one worker are kept, so that a worker cannot fill its job's status.
const maxMetrics = 64

// Parse reads Prometheus text and returns the figures in it. Families that are not part of the worker contract are
// passed over. It returns an error when the text is not in the format.
func Parse(text io.Reader) (Figures, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return Figures{}, fmt.Errorf("parse metrics as Prometheus text: %w", err)
	}
	figures := Figures{
		Epoch:                 int32(first(families, "training_epoch")),
		Epochs:                int32(first(families, "training_epochs")),
		Ratio:                 optional(families, "training_progress_ratio"),
		GPUUtilizationPercent: optional(families, "training_gpu_utilization_percent"),
		Metrics:               namedMetrics(families),
		Checkpoint:            checkpoint(families),
	}
	return figures, nil
}

func namedMetrics(families map[string]*dto.MetricFamily) map[string]float64 {
	metrics := map[string]float64{}
	for family, name := range map[string]string{"training_loss": "loss", "training_accuracy": "accuracy"} {
		if value := optional(families, family); value != nil {
			addMetric(metrics, name, *value)
		}
	}
	for _, metric := range families["training_metric"].GetMetric() {
		addMetric(metrics, label(metric, "name"), sample(metric))
	}
	if len(metrics) == 0 {
		return nil
	}
	return metrics
}

func checkpoint(families map[string]*dto.MetricFamily) *Checkpoint {
	info := families["training_checkpoint_info"].GetMetric()
	if len(info) == 0 {
		return nil
	}
	made := &Checkpoint{
		Path:      label(info[0], "path"),
		Epoch:     int32(first(families, "training_checkpoint_epoch")),
		Step:      int64(first(families, "training_checkpoint_step")),
		SizeBytes: int64(first(families, "training_checkpoint_size_bytes")),
	}
	made.Time = seconds(first(families, "training_checkpoint_timestamp_seconds"))
	return made
}

// seconds turns seconds since the epoch into a time in whole seconds, as the API stores it.
func seconds(value float64) time.Time {
	if value <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(value), 0).UTC()
}

func first(families map[string]*dto.MetricFamily, name string) float64 {
	if value := optional(families, name); value != nil {
		return *value
	}
	return 0
}

// optional returns the first sample of a family; nil when there is none or it is not finite, which JSON cannot hold.
func optional(families map[string]*dto.MetricFamily, name string) *float64 {
	metrics := families[name].GetMetric()
	if len(metrics) == 0 {
		return nil
	}
	value := sample(metrics[0])
	if !finite(value) {
		return nil
	}
	return &value
}

func sample(metric *dto.Metric) float64 {
	switch {
	case metric.Gauge != nil:
		return metric.GetGauge().GetValue()
	case metric.Counter != nil:
		return metric.GetCounter().GetValue()
	default:
		return metric.GetUntyped().GetValue()
	}
}

func finite(value float64) bool {
	return !math.IsNaN(value) && !math.IsInf(value, 0)
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
