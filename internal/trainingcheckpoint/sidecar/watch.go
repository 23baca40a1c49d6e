package sidecar

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// watch calls changed when something visible appears in the directory. It is a matter of speed only: what is not told,
// as on NFS, the next look finds.
func watch(ctx context.Context, d volume.Directory, changed func(), log *slog.Logger) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Debug("the directory cannot be watched", "error", err.Error())
		return
	}
	defer func() { _ = watcher.Close() }()
	exists := func(context.Context) (bool, error) { return watcher.Add(d.Path) == nil, nil }
	if wait.PollUntilContextCancel(ctx, 2*time.Second, true, exists) != nil {
		return
	}
	changed()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			if event.Has(fsnotify.Create) && !strings.HasPrefix(filepath.Base(event.Name), ".") {
				changed()
			}
		case err, open := <-watcher.Errors:
			if !open {
				return
			}
			log.Debug("while watching the directory", "error", err.Error())
		}
	}
}
