package sidecar

import (
	"encoding/json"
	"os"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/restore"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// restoredFile tells the sidecar what the init container of the same pod has restored.
const restoredFile = ".agent-restored.json"

type restored struct {
	Attempt    int                `json:"attempt"`
	Name       string             `json:"name,omitempty"`
	Checkpoint *report.Checkpoint `json:"checkpoint,omitempty"`
	Skipped    []report.Skipped   `json:"skipped,omitempty"`
}

func remember(s Settings, r restore.Result) error {
	if err := s.Directory.Create(); err != nil {
		return err
	}
	text, err := json.Marshal(restored{Attempt: s.Attempt, Name: r.Name, Checkpoint: r.Restored, Skipped: r.Skipped})
	if err != nil {
		return err
	}
	return volume.WriteFile(s.Directory.Path, restoredFile, text)
}

// recall returns what remember noted in the same attempt.
func recall(s Settings) restored {
	var r restored
	text, err := os.ReadFile(s.Directory.Join(restoredFile))
	if err != nil || json.Unmarshal(text, &r) != nil || r.Attempt != s.Attempt {
		return restored{}
	}
	return r
}
