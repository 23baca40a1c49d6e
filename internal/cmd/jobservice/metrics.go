package jobservice

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientrest "k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dcnlab/spot-training-operator/internal/accessreview"
)

const (
	// closeTimeout bounds the shutdown of the metrics server.
	closeTimeout = 3 * time.Second
	// reviewQPS and reviewBurst are the requests per second, and at once above that, by which it is asked who may read metrics.
	reviewQPS, reviewBurst = 50, 100
)

// serveMetrics for Prometheus until the context ends, and the service's health for the kubelet, however the REST interface is served.
func (o *options) serveMetrics(ctx context.Context, registry *prometheus.Registry, health http.Handler, log logr.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.metricsAddress)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
	if o.metricsSecure {
		if metrics, err = o.reviewed(metrics, log); err != nil {
			return fmt.Errorf("--metrics-secure: %w", err)
		}
		if listener, err = encrypted(listener); err != nil {
			return fmt.Errorf("--metrics-secure: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.Handle(healthPath, health)
	server := metricsServer(mux)
	timeout := closeTimeout
	if err := (&manager.Server{Name: "metrics", Server: server, Listener: listener, ShutdownTimeout: &timeout}).Start(ctx); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// metricsServer has limits on how long a client may take. Between two scrapes the connection of Prometheus stays.
func metricsServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
}

// reviewed lets only those through whom Kubernetes allows it.
func (o *options) reviewed(handler http.Handler, log logr.Logger) (http.Handler, error) {
	config, err := o.cluster.config()
	if err != nil {
		return nil, err
	}
	return reviewedBy(config, handler, log)
}

func reviewedBy(config *clientrest.Config, handler http.Handler, log logr.Logger) (http.Handler, error) {
	config.QPS, config.Burst = reviewQPS, reviewBurst
	client, err := clientrest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	filter, err := accessreview.MetricsFilter(config, client)
	if err != nil {
		return nil, err
	}
	return filter(log, handler)
}

// encrypted has a certificate that nothing vouches for, as the manager's metrics: callers are checked by their token.
func encrypted(listener net.Listener) (net.Listener, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}), nil
}
