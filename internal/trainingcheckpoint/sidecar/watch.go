package sidecar

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

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
	for watcher.Add(d.Path) != nil { // it is not there yet
		sleep(ctx, 2*time.Second)
		if ctx.Err() != nil {
			return
		}
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
