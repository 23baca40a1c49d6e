package containercheckpoint

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// setLogger makes every log line a JSON object on standard error, without what can be known to be a secret.
func setLogger(level string) error {
	var slogLevel slog.Level
	if err := slogLevel.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level: %q is none of debug, info, warn and error: %w", level, err)
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slogLevel, ReplaceAttr: redact.LogAttribute}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return nil
}
