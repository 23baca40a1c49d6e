package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Parse reads Prometheus text and returns the figures in it. Families that are not part of the worker contract are
// passed over. It returns an error when the text is not in the format.
func Parse(text io.Reader) (Figures, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return Figures{}, fmt.Errorf("parse metrics as Prometheus text: %w", err)
	}
	// The first sample of each family, in the form of a termination message.
	message := map[string]any{}
	for name, family := range families {
		if value := sample(family.GetMetric()[0]); strings.HasPrefix(name, "training_") && finite(value) {
			message[name] = value
		}
	}
	named, path := map[string]float64{}, ""
	for _, metric := range families["training_metric"].GetMetric() {
		if value := sample(metric); finite(value) {
			named[label(metric, "name")] = value
		}
	}
	if info := families["training_checkpoint_info"].GetMetric(); len(info) > 0 {
		path = label(info[0], "path")
	}
	message["training_metrics"], message["training_checkpoint_path"] = named, path
	var reported termination
	encoded, err := json.Marshal(message)
	if err == nil {
		err = json.Unmarshal(encoded, &reported)
	}
	return reported.figures(), err
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

// finite says whether JSON can hold a value.
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
