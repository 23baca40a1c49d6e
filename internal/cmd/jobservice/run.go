package jobservice

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
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
	if o.tokens.Secrets, err = o.secrets(); err != nil {
		return err
	}
	service := rest.Options{
		Limits: o.limits, MaxOpenJobs: o.maxOpenJobs, MaxOpenJobsPerUser: o.maxOpenJobsPerUser, TrustedProxies: o.trustedProxies,
		Log: logr.FromSlogHandler(log.Handler()),
	}
	if service.RefuseJobs = o.store.refusal(); service.RefuseJobs != "" {
		log.Warn("Jobs are refused", "reason", service.RefuseJobs)
	}
	cluster, err := o.cluster.connect()
	if err != nil {
		return err
	}
	if cluster != nil {
		o.tokens.Reviewer, service.Kubernetes = cluster, cluster
		// A trial's users are none that Kubernetes knows.
		if !o.trial && !o.cluster.withoutAccessReview {
			service.Authorizer = cluster
		}
	}
	if service.Authenticator, err = auth.New(o.tokens); err != nil {
		return fmt.Errorf("set up the verification of tokens: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	defer listener.Close()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	certificate, err := o.certificate()
	if err != nil {
		return err
	}
	if certificate != nil {
		registry.MustRegister(metrics.NewJobServiceCertificateExpiry(certificate.GetCertificate))
	}
	// What works in the background goes on until the last request has been answered.
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	figures := metrics.NewJobService(registry)
	opened, err := o.store.open(lifetime, service.Log, figures)
	if err != nil {
		return err
	}
	figures.Queues(opened)
	service.Metrics, service.Store = figures, opened
	// Once one part has failed the others end.
	group, failed := errgroup.WithContext(ctx)
	if cluster != nil {
		settings := o.cluster.settings()
		if service.Authorizer != nil {
			settings.Access = auth.NewAccess(service.Authorizer, time.Now)
		}
		dispatcher := runner.NewDispatcher(cluster, service.Store, settings, runner.NewMetrics(registry), log)
		service.Store = &runner.Watched{Store: service.Store, Dispatcher: dispatcher}
		group.Go(func() error { return cluster.Run(lifetime) })
		group.Go(func() error { return dispatcher.Run(lifetime) })
	} else {
		log.Info("Kubernetes is off: jobs with an image stay queued", "flag", "--kubernetes")
	}
	if o.trial {
		if err := welcome(out, o.url(listener.Addr()), o.store.DataDir, o.tokens.Secrets[0]); err != nil {
			return err
		}
	}
	streams, endStreams := context.WithCancel(lifetime)
	defer endStreams()
	service.Context = streams
	handler := rest.New(service)
	if o.metricsAddress != "0" {
		group.Go(func() error { return o.serveMetrics(lifetime, registry, handler, service.Log) })
	}
	group.Go(func() error {
		defer end()
		return o.serve(failed, listener, certificate, tracing.Handler(handler, healthPath), endStreams, log)
	})
	if !o.trial && !o.encrypted() && !o.plainHTTP {
		log.Warn("Tokens come by plain HTTP: set --tls-cert-file and --tls-key-file, or --plain-http where a proxy ends TLS")
	}
	log.Info("Serving", "address", listener.Addr().String(), "tls", o.encrypted(), "kubernetes", cluster != nil, "trial", o.trial)
	err = group.Wait()
	handler.Wait()
	opened.Close()
	return err
}

// secrets that tokens are signed with.
func (o *options) secrets() ([][]byte, error) {
	secrets, err := o.hmac.read()
	if err != nil || !o.trial || len(secrets) > 0 {
		return secrets, err
	}
	secret, err := keepSecret(o.store.DataDir)
	return [][]byte{secret}, err
}

// url of the service for a client on this machine.
func (o *options) url(address net.Addr) string {
	scheme := "http"
	if o.encrypted() {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(address.String()) // It is that of a listener.
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
