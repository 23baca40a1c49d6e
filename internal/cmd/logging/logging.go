// Package logging sets up the log of the subcommands: JSON objects on standard error, without what is known to be a secret.
package logging

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// Start returns a logger of the level that the flag --log-level names, and has controllers and the libraries of Kubernetes log to it.
func Start(level string) (*slog.Logger, error) {
	var slogLevel slog.Level
	if err := slogLevel.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn and error: %w", level, err)
	}
	log := newLogger(slogLevel)
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	return log, nil
}

// FromEnvironment returns a logger of the level that the variable LOG_LEVEL names; info when it names none.
func FromEnvironment() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv("LOG_LEVEL"))); err != nil {
		level = slog.LevelInfo
	}
	return newLogger(level)
}

func newLogger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: redact.LogAttribute}))
}
