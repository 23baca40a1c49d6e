package jobservice

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/runner"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

func run(ctx context.Context, o options, out io.Writer) error {
	log, err := logging.Start(o.logLevel)
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	stopTracing, err := tracing.Start(ctx, "job-service", ctrl.Log)
	if err != nil {
		return err
	}
	defer stopTracing()
	secrets, err := o.secrets()
	if err != nil {
		return err
	}
	cluster, err := o.newCluster()
	if err != nil {
		return err
	}
	authenticator, err := auth.New(o.authentication(secrets, cluster))
	if err != nil {
		return fmt.Errorf("set up the verification of tokens: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	defer listener.Close()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// What works in the background goes on until the last request has been answered.
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	opened, err := o.store.open(lifetime, log)
	if err != nil {
		return err
	}
	figures := metrics.NewJobService(registry)
	counted := figures.Store(opened)
	store := counted
	// Once one part has failed the others end.
	group, failed := errgroup.WithContext(ctx)
	if cluster != nil {
		dispatcher := runner.NewDispatcher(cluster, counted, o.cluster.settings(), runner.NewMetrics(registry), clock.RealClock{}, log)
		store = &runner.Watched{Store: counted, Dispatcher: dispatcher}
		group.Go(func() error { return cluster.Run(lifetime) })
		group.Go(func() error { return dispatcher.Run(lifetime) })
	} else {
		log.Info("Kubernetes is off: jobs with an image stay queued", "flag", "--kubernetes")
	}
	if o.trial {
		if err := welcome(out, o.url(listener.Addr()), o.store.dataDir, secrets[0]); err != nil {
			return err
		}
	}
	streams, endStreams := context.WithCancel(lifetime)
	defer endStreams()
	handler := rest.New(o.service(store, cluster, authenticator, figures, streams, log))
	if o.metricsAddress != "0" {
		group.Go(func() error { return serveMetrics(lifetime, o.metricsAddress, registry, handler) })
	}
	group.Go(func() error {
		defer end()
		return o.serve(failed, listener, tracing.Handler(handler, healthPath), endStreams, log)
	})
	log.Info("Serving", "address", listener.Addr().String(), "kubernetes", cluster != nil, "trial", o.trial)
	err = group.Wait()
	opened.Close()
	return err
}

// service has what the REST interface needs.
func (o *options) service(
	store jobs.Store, cluster *runner.Cluster, authenticator *auth.Authenticator, figures *metrics.JobService,
	streams context.Context, //nolint:revive // it is not this call's, but that of all streams
	log *slog.Logger,
) rest.Options {
	options := rest.Options{
		Store: store, Authenticator: authenticator, Limits: o.limits, Metrics: figures,
		Log: logr.FromSlogHandler(log.Handler()), Context: streams,
	}
	if cluster != nil {
		options.Kubernetes = cluster
		// A trial's users are none that Kubernetes knows.
		if !o.trial && !o.cluster.withoutAccessReview {
			options.Authorizer = cluster
		}
	}
	return options
}

// secrets that tokens are signed with.
func (o *options) secrets() ([][]byte, error) {
	secrets, err := o.hmac.read()
	if err != nil || !o.trial || len(secrets) > 0 {
		return secrets, err
	}
	secret, err := keepSecret(o.store.dataDir)
	return [][]byte{secret}, err
}

// newCluster returns nil when the service does without Kubernetes.
func (o *options) newCluster() (*runner.Cluster, error) {
	config, err := o.cluster.config()
	if err != nil || config == nil {
		return nil, err
	}
	return runner.NewCluster(config, runner.Options{QPS: o.cluster.qps, Burst: o.cluster.burst})
}

func (o *options) authentication(secrets [][]byte, cluster *runner.Cluster) auth.Options {
	options := auth.Options{
		Secrets: secrets, JWKS: o.jwks, Issuer: o.issuer, Audience: o.audience, DefaultNamespace: o.defaultNamespace,
	}
	if cluster != nil {
		options.Reviewer = cluster
	}
	return options
}

// url of the service for a client on this machine.
func (o *options) url(address net.Addr) string {
	scheme := "http"
	if o.certFile != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return scheme + "://" + address.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// closeTimeout bounds the shutdown of the metrics server.
const closeTimeout = 3 * time.Second
