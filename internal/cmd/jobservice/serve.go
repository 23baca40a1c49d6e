package jobservice

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// silence is how long a connection may have been opened without a request when the service ends.
const silence = time.Second

// certificate that the REST interface is served with; nil: it is served by plain HTTP.
func (o *options) certificate() (*certwatcher.CertWatcher, error) {
	if !o.encrypted() {
		return nil, nil
	}
	watcher, err := certwatcher.New(o.certFile, o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
	}
	return watcher, nil
}

// serve the REST interface until the context ends; then requests that are under way may end. endStreams ends those that would go on,
// which are workers that wait for tasks and logs that are followed.
func (o *options) serve(
	ctx context.Context, listener net.Listener, certificate *certwatcher.CertWatcher, handler http.Handler, endStreams func(), log *slog.Logger,
) error {
	server := rest.Server(handler)
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	server.RegisterOnShutdown(endStreams)
	closeSilent(server)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if certificate != nil {
		go func() {
			if err := certificate.Start(serving); err != nil {
				log.Error("Cannot watch the certificate", "error", err)
			}
		}()
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate, NextProtos: []string{"h2", "http/1.1"}}
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	defer context.AfterFunc(ctx, func() {
		log.Info("Shutting down", "delay", o.shutdownDelay, "timeout", o.shutdownTimeout)
		time.Sleep(o.shutdownDelay)
		stop()
	})()
	err := (&manager.Server{Name: "REST interface", Server: server, Listener: listener, ShutdownTimeout: &o.shutdownTimeout}).Start(serving)
	_ = server.Close() // cuts off requests that did not end in time
	if err != nil {
		return fmt.Errorf("serve the REST interface: %w", err)
	}
	return nil
}

// closeSilent has a server close, when it shuts down, connections on which no request has come yet, as clients open them in advance. It
// would wait for them for seconds, though no client waits for an answer.
func closeSilent(server *http.Server) {
	var silent sync.Map
	server.ConnState = func(connection net.Conn, state http.ConnState) {
		if state == http.StateNew {
			silent.Store(connection, nil)
		} else {
			silent.Delete(connection)
		}
	}
	server.RegisterOnShutdown(func() {
		time.Sleep(silence)
		silent.Range(func(connection, _ any) bool {
			_ = connection.(net.Conn).Close() // it is over either way
			return true
		})
	})
}

// healthPath is where the handler of the REST interface reports the service's health.
const healthPath = rest.Base + "/health/"
