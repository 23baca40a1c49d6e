// Package checkpointagent is the subcommand of the containers that keep a training's checkpoints: an init container that
// restores, and a native sidecar that syncs.
package checkpointagent

import (
	"context"
	"errors"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/cmd/memory"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
)

// Exit codes, those of the worker contract.
const (
	exitSettings = 64
	exitNotFound = 65
	exitStopped  = 143
)

// memoryLimit is where Go's garbage collector begins to try harder. The agent stays under 128 MiB with it.
const memoryLimit = 80 << 20

// exitError ends the process with a code.
type exitError struct {
	error
	code int
}

// ExitCode is the code to end the process with.
func (e exitError) ExitCode() int { return e.code }

func (e exitError) Unwrap() error { return e.error }

// New returns the subcommand.
func New() *cobra.Command {
	command := &cobra.Command{
		Use:   "checkpoint-agent",
		Short: "Keep the checkpoints of a training safe (runs beside replica 0)",
		Long: "Keep the checkpoints of a training safe. It runs in the pods of a TrainingJob and takes its settings from the\n" +
			"environment; see docs/guide/checkpoints.md.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(
		&cobra.Command{
			Use: "restore", Args: cobra.NoArgs,
			Short: "Bring the newest valid checkpoint to where the training looks for it, then end",
			RunE:  func(command *cobra.Command, _ []string) error { return run(command.Context(), sidecar.Restore, false) },
		},
		&cobra.Command{
			Use: "sync", Args: cobra.NoArgs,
			Short: "Bring finished checkpoints to the storage, verify and prune them, until SIGTERM",
			RunE:  func(command *cobra.Command, _ []string) error { return run(command.Context(), sidecar.Sync, true) },
		},
		newSign(),
	)
	return command
}

func run(ctx context.Context, role func(context.Context, sidecar.Settings) error, stays bool) error {
	// All replicas have the same containers, but only replica 0 has checkpoints. Nothing is set up for the others.
	if index := os.Getenv(envReplica); index != "" && index != "0" {
		if stays {
			debug.FreeOSMemory()
			<-ctx.Done()
		}
		return nil
	}
	log := logging.FromEnvironment()
	settings, err := fromEnvironment(os.Getenv)
	if err != nil {
		return exitError{err, exitSettings}
	}
	settings.Log = log
	memory.Limit(50, memoryLimit)
	err = role(ctx, settings)
	switch {
	case errors.Is(err, sidecar.ErrNotFound):
		return exitError{err, exitNotFound}
	case errors.Is(err, context.Canceled):
		return exitError{errors.New("stopped before the checkpoint was restored"), exitStopped}
	}
	return err
}
