package jobservice

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// serve the REST interface until the context ends; then requests that are under way may end. endStreams ends those that would go on,
// which are workers that wait for tasks and logs that are followed.
func (o *options) serve(ctx context.Context, listener net.Listener, handler http.Handler, endStreams func(), log *slog.Logger) error {
	server := rest.Server(handler)
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	var unused silent
	server.ConnState = unused.follow
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	if o.certFile != "" {
		watcher, err := certwatcher.New(o.certFile, o.keyFile)
		if err != nil {
			return fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
		}
		go func() {
			if err := watcher.Start(watching); err != nil {
				log.Error("Cannot watch the certificate", "error", err)
			}
		}()
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate, NextProtos: []string{"h2", "http/1.1"}}
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	select {
	case err := <-serving:
		return fmt.Errorf("serve the REST interface: %w", err)
	case <-ctx.Done():
	}
	log.Info("Shutting down", "delay", o.shutdownDelay)
	time.Sleep(o.shutdownDelay)
	endStreams()
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), o.shutdownTimeout)
	defer stop()
	closing := time.AfterFunc(silence, unused.close)
	defer closing.Stop()
	if err := server.Shutdown(ending); err != nil {
		log.Warn("Cutting off requests that did not end in time", "timeout", o.shutdownTimeout)
		_ = server.Close() // it is over either way
	}
	if err := <-serving; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the REST interface: %w", err)
	}
	return nil
}

// silence is how long a connection may have been opened without a request when the service ends.
const silence = time.Second

// healthPath is where the handler of the REST interface reports the service's health.
const healthPath = rest.Base + "/health/"

// serveMetrics for Prometheus until the context ends, and the service's health for the kubelet: by plain HTTP, however the REST
// interface is served.
func serveMetrics(ctx context.Context, address string, registry *prometheus.Registry, health http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	mux.Handle(healthPath, health)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	select {
	case err := <-serving:
		return fmt.Errorf("serve metrics: %w", err)
	case <-ctx.Done():
	}
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer stop()
	_ = server.Shutdown(ending) // a scrape that is cut off is made again
	if err := <-serving; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
