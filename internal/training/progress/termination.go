package progress

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxMetrics bounds how many named metrics of one worker are kept, so that a worker cannot fill its job's status.
	maxMetrics = 64
	// significantDigits of a metric are kept: more only make figures hard to read, and a change of theirs is not reported.
	significantDigits = 6
)

// termination is the JSON object that a worker leaves as its container's termination message. Its names are those of the
// metrics.
type termination struct {
	Epoch          float64            `json:"training_epoch"`
	Epochs         float64            `json:"training_epochs"`
	Ratio          *float64           `json:"training_progress_ratio"`
	Loss           *float64           `json:"training_loss"`
	Accuracy       *float64           `json:"training_accuracy"`
	GPUUtilization *float64           `json:"training_gpu_utilization_percent"`
	Metrics        map[string]float64 `json:"training_metrics"`
	CheckpointPath string             `json:"training_checkpoint_path"`
	Checkpoint     float64            `json:"training_checkpoint_epoch"`
	CheckpointStep float64            `json:"training_checkpoint_step"`
	CheckpointSize float64            `json:"training_checkpoint_size_bytes"`
	CheckpointTime float64            `json:"training_checkpoint_timestamp_seconds"`
	Reason         string             `json:"reason"`
	Message        string             `json:"message"`
}

// ParseTermination reads a container's termination message. It returns false when the message is not the JSON object
// of the worker contract, which is no error: a worker is free to leave none, or the kubelet to leave its last log lines.
func ParseTermination(text string) (Figures, bool) {
	var t termination
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || json.Unmarshal([]byte(text), &t) != nil {
		return Figures{}, false
	}
	return t.figures(), true
}

func (t *termination) figures() Figures {
	figures := Figures{
		Epoch: int32(t.Epoch), Epochs: int32(t.Epochs), Ratio: t.Ratio, GPUUtilizationPercent: t.GPUUtilization,
		Metrics: t.metrics(), Reason: t.Reason, Message: t.Message,
	}
	if t.CheckpointPath != "" {
		figures.Checkpoint = &Checkpoint{
			Path: t.CheckpointPath, Epoch: int32(t.Checkpoint), Step: int64(t.CheckpointStep), SizeBytes: int64(t.CheckpointSize),
		}
		if t.CheckpointTime > 0 { // in whole seconds, as the API stores it
			figures.Checkpoint.Time = time.Unix(int64(t.CheckpointTime), 0).UTC()
		}
	}
	return figures
}

// metrics are those with a name, nil when there are none; if there are too many, the same are left out each time.
func (t *termination) metrics() map[string]float64 {
	var metrics map[string]float64
	add := func(name string, value float64) {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', significantDigits, 64), 64)
		if name == "" || err != nil || len(metrics) >= maxMetrics {
			return
		}
		if metrics == nil {
			metrics = map[string]float64{}
		}
		metrics[name] = rounded
	}
	for name, value := range map[string]*float64{"loss": t.Loss, "accuracy": t.Accuracy} {
		if value != nil {
			add(name, *value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
		add(name, t.Metrics[name])
	}
	return metrics
}
