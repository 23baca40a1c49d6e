// Package sidecar is the checkpoint agent: it brings a checkpoint back before a training starts (Restore), keeps the
// training's checkpoints safe while it runs (Sync), and tells the manager how that goes.
package sidecar

import (
	"log/slog"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// Settings of an agent.
type Settings struct {
	// Directory of the job's checkpoints, as the training sees it.
	Directory volume.Directory
	// Store of the job's checkpoints; nil when they are kept in Directory.
	Store *store.Store
	// Retention is the number of checkpoints to keep; 0 keeps all.
	Retention int
	// Attempt of the job, by which an agent that was left over from an earlier one stops: a number that grows with every start
	// of its workers, restarts and resumptions alike.
	Attempt int

	// ResumePath or ResumeStore is what RESUME_FROM names; empty and nil when it is not set.
	ResumePath  string
	ResumeStore *store.Store
	// ResumeOptional: that there is nothing to resume from is no error.
	ResumeOptional bool

	// Address to serve at, for example :9464.
	Address string
	// TerminationPath is the file of the termination message.
	TerminationPath string
	Log             *slog.Logger

	// Look is how often the storage is looked at when nothing happens.
	Look time.Duration
	// Margin is how old a content must be that no checkpoint refers to before it is deleted.
	Margin time.Duration
	// Backoff is the first wait after a failure; it doubles up to MaxBackoff.
	Backoff, MaxBackoff time.Duration
}

// Defaults of settings that the environment does not change. What is wrong with a storage is known after at most one look
// and the time in which a store counts as one that does not answer, which together are less than a minute.
const (
	DefaultLook       = 20 * time.Second
	DefaultMargin     = time.Hour
	DefaultBackoff    = time.Second
	DefaultMaxBackoff = 15 * time.Second
	// collectEvery is how often contents that no checkpoint refers to are looked for.
	collectEvery = 10 * time.Minute
)

func (s Settings) withDefaults() Settings {
	for value, otherwise := range map[*time.Duration]time.Duration{
		&s.Look: DefaultLook, &s.Margin: DefaultMargin, &s.Backoff: DefaultBackoff, &s.MaxBackoff: DefaultMaxBackoff,
	} {
		if *value == 0 {
			*value = otherwise
		}
	}
	return s
}
