package sidecar

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// serve answers the manager until ctx ends. That the port is taken must not keep the training from starting or its
// checkpoints from being kept, so it is tried again. request is nil where nothing can be asked for.
func serve(ctx context.Context, address string, s *status, request func(id string), log *slog.Logger) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+report.StatusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.snapshot())
	})
	if request != nil {
		mux.HandleFunc("POST "+report.RequestPath, func(w http.ResponseWriter, r *http.Request) {
			id := r.URL.Query().Get("id")
			if id == "" || len(id) > volume.MaxRequestID || strings.TrimSpace(id) != id || strings.ContainsAny(id, "\r\n\x00") {
				http.Error(w, "id: must be 1 to 256 bytes without line breaks or spaces at its ends", http.StatusBadRequest)
				return
			}
			request(id)
			w.WriteHeader(http.StatusAccepted)
		})
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			err = server.Serve(listener)
		}
		if ctx.Err() == nil {
			log.Warn("the agent's report cannot be served; trying again", "error", err.Error())
		}
	}, 5*time.Second)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
