// Package progress reads what a training worker reports: Prometheus text while it runs, and the termination message
// when it has ended. docs/worker-contract.md describes both for the authors of workers.
package progress

import (
	"reflect"
	"time"
)

// Figures are what replica 0 of a training job reported. Fields that it did not report are zero.
type Figures struct {
	// Epoch is the epoch in progress, from 1.
	Epoch int32
	// Epochs is the number of epochs in all.
	Epochs int32
	// Ratio is the share of the training that is done, 0 to 1; nil when not reported.
	Ratio *float64
	// GPUUtilizationPercent is 0 to 100; nil when not reported.
	GPUUtilizationPercent *float64
	// Metrics are loss, accuracy and whatever else the worker reports, by name, rounded to six significant digits.
	Metrics map[string]float64
	// Checkpoint is the newest checkpoint that the worker made; nil when it reported none.
	Checkpoint *Checkpoint
	// Reason is why the worker ended, from its termination message only, for example TargetReached.
	Reason string
	// Message says more about Reason.
	Message string
}

// Checkpoint is a checkpoint that a worker made.
type Checkpoint struct {
	// Path of its directory, as the worker sees it.
	Path string
	// Epoch that it was taken in or after, from 1.
	Epoch int32
	// Step is the number of optimizer steps that it holds.
	Step int64
	// SizeBytes is its size in bytes.
	SizeBytes int64
	// Time is when it was made; zero when not reported.
	Time time.Time
}

// Equal says whether two sets of figures tell the same.
func (f Figures) Equal(other Figures) bool { return reflect.DeepEqual(f, other) }
