// Package sidecar is the checkpoint agent: it brings a checkpoint back before a training starts (Restore), keeps the
// training's checkpoints safe while it runs (Sync), and tells the manager how that goes.
package sidecar

import (
	"cmp"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/restore"
)

// Settings of an agent.
type Settings struct {
	// What is restored, and from where. Directory, Store and Log are for all that the agent does.
	restore.Settings

	// Retention is the number of checkpoints to keep; 0 keeps all.
	Retention int
	// Attempt of the job, by which an agent that was left over from an earlier one stops: a number that grows with every start
	// of its workers, restarts and resumptions alike.
	Attempt int

	// Address to serve at, for example :9464.
	Address string
	// TerminationPath is the file of the termination message.
	TerminationPath string

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
	s.Look, s.Margin = cmp.Or(s.Look, DefaultLook), cmp.Or(s.Margin, DefaultMargin)
	s.Backoff, s.MaxBackoff = cmp.Or(s.Backoff, DefaultBackoff), cmp.Or(s.MaxBackoff, DefaultMaxBackoff)
	return s
}

// newBackoff returns the pauses between tries: each is twice the one before, and up to a quarter longer, so that the agents of many jobs
// do not ask all at once.
func (s Settings) newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: s.Backoff, Factor: 2, Jitter: 0.25, Steps: math.MaxInt, Cap: s.MaxBackoff}
}
