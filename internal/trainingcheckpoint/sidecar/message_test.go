package sidecar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
)

func TestATerminationMessageHasRoom(t *testing.T) {
	long := strings.Repeat("ä\"\n", 3000)
	r := report.Report{
		Phase:    report.PhaseDone,
		Newest:   &report.Checkpoint{Path: "s3://bucket/checkpoint-epoch-1", Epoch: 1, Step: 12, SizeBytes: 1, Time: time.Now()},
		Restored: &report.Checkpoint{Path: strings.Repeat("x", 500)},
		Problem:  &report.Problem{Reason: report.ReasonStorageError, Message: long},
		Request:  &report.Request{ID: strings.Repeat("i", 256), State: report.RequestFailed, Message: long},
	}
	for range 5 {
		r.Skipped = append(r.Skipped, report.Skipped{Path: "/checkpoints/" + strings.Repeat("y", 300), Message: long})
	}
	text := sidecar.Message(r)
	assert.LessOrEqual(t, len(text), report.MaxTerminationBytes)
	got, ok := report.Parse(text)
	assert.True(t, ok)
	assert.Equal(t, "s3://bucket/checkpoint-epoch-1", got.Newest.Path)
	assert.Equal(t, report.ReasonStorageError, got.Problem.Reason)
	assert.NotNil(t, got.Request)
}
