package progress

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// terminationMessage is the JSON object that a worker leaves as its container's termination message. Its names are
// those of the metrics.
type terminationMessage struct {
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
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return Figures{}, false
	}
	var message terminationMessage
	if err := json.Unmarshal([]byte(text), &message); err != nil {
		return Figures{}, false
	}
	figures := Figures{
		Epoch: int32(message.Epoch), Epochs: int32(message.Epochs), Ratio: message.Ratio,
		GPUUtilizationPercent: message.GPUUtilization, Metrics: message.metrics(),
		Reason: message.Reason, Message: message.Message,
	}
	if message.CheckpointPath != "" {
		figures.Checkpoint = &Checkpoint{
			Path: message.CheckpointPath, Epoch: int32(message.Checkpoint), Step: int64(message.CheckpointStep),
			SizeBytes: int64(message.CheckpointSize), Time: seconds(message.CheckpointTime),
		}
	}
	return figures, true
}

func (m terminationMessage) metrics() map[string]float64 {
	metrics := map[string]float64{}
	if m.Loss != nil {
		addMetric(metrics, "loss", *m.Loss)
	}
	if m.Accuracy != nil {
		addMetric(metrics, "accuracy", *m.Accuracy)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Metrics)) { // so that the same are left out each time
		addMetric(metrics, name, m.Metrics[name])
	}
	if len(metrics) == 0 {
		return nil
	}
	return metrics
}
