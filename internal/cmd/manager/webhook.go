package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancejob"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancevm"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/certificate"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	agentworkflowwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/agentworkflow"
	aijobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/aijob"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
	spotwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/spot"
	trainingjobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/trainingjob"
)

// Where the serving certificate of the webhooks comes from.
const (
	certificateOff   = "off"
	certificateFiles = "files"
	certificateSelf  = "self"
)

// managerAccount is the ServiceAccount of the manager.
const managerAccount = "spot-training-operator-controller-manager"

// clientCAVariable names the file of --webhook-client-ca: a Subscription of OLM can set variables, but no flags.
const clientCAVariable = "WEBHOOK_CLIENT_CA"

// namespaceVariable names the manager's own namespace.
const namespaceVariable = "POD_NAMESPACE"

// webhookOptions are the flags of the admission webhooks.
type webhookOptions struct {
	certMode      string
	certDir       string
	clientCA      string
	certSecret    string
	certHosts     []string
	host          string
	port          int
	service       string
	configuration string
	namespace     string
	jobService    string
}

func (o *webhookOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.certMode, "webhook-cert-mode", certificateOff,
		"where the webhooks' certificate comes from: files (of --webhook-cert-dir, reloaded when they change), "+
			"self (made and renewed by the manager, kept in --webhook-cert-secret), or off (no webhooks are served)")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs", "directory of tls.crt and tls.key in mode files")
	flags.StringVar(&o.clientCA, "webhook-client-ca", os.Getenv(clientCAVariable),
		"file of the authorities that sign the certificate by which the API server shows itself to webhooks, and no other certificates, read again when it "+
			"changes: the webhooks look up what a job names for the API server only. Mode self knows it without (environment: "+clientCAVariable+")")
	flags.StringVar(&o.certSecret, "webhook-cert-secret", "spot-training-operator-webhook-certificate",
		"Secret in the manager's namespace that keeps the certificate in mode self")
	flags.StringSliceVar(&o.certHosts, "webhook-cert-hosts", nil,
		"more host names and addresses that the certificate is good for in mode self, where the API server does not call by the Service")
	flags.StringVar(&o.host, "webhook-bind-host", "", "address that the webhook server listens at (default: all)")
	flags.IntVar(&o.port, "webhook-port", webhook.DefaultPort, "port of the webhook server")
	flags.StringVar(&o.service, "webhook-service", "spot-training-operator-webhook",
		"Service in the manager's namespace by which the API server calls the webhooks, for the certificate in mode self")
	flags.StringVar(&o.configuration, "webhook-configuration", "spot-training-operator",
		"name of the two webhook configurations that mode self makes the certificate known in")
	flags.StringVar(&o.namespace, "namespace", os.Getenv(namespaceVariable),
		"namespace of the manager, where mode self keeps its Secret and from which isolated jobs are read (environment: "+namespaceVariable+")")
	flags.StringVar(&o.jobService, "job-service-account", "spot-training-operator-job-service",
		"ServiceAccount in the manager's namespace of the job service, which may create AIJobs in the name of other users")
}

// trusted are the users who may say for whom they create an AIJob: the job service, and the operator for its workflows.
func (o *webhookOptions) trusted() []string {
	if o.namespace == "" {
		return nil
	}
	return []string{
		fmt.Sprintf("system:serviceaccount:%s:%s", o.namespace, o.jobService),
		fmt.Sprintf("system:serviceaccount:%s:%s", o.namespace, managerAccount),
	}
}

// validate names the flag that is wrong, and the way out.
func (o *webhookOptions) validate() error {
	switch o.certMode {
	case certificateOff:
		return nil
	case certificateFiles:
		for _, name := range []string{"tls.crt", "tls.key"} {
			if _, err := os.Stat(filepath.Join(o.certDir, name)); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("--webhook-cert-dir: there is no %s in %s: mount the certificate's Secret there, or set --webhook-cert-mode to self or off",
					name, o.certDir)
			} else if err != nil {
				return fmt.Errorf("--webhook-cert-dir: %w", err)
			}
		}
		return nil
	case certificateSelf:
		if o.namespace == "" {
			return fmt.Errorf("--namespace: is not set, but --webhook-cert-mode=self keeps a Secret there: set it, or the environment variable %s", namespaceVariable)
		}
		return nil
	}
	return fmt.Errorf("--webhook-cert-mode: %q is none of files, self and off", o.certMode)
}

// webhooks are the webhook server, nil when it is off, and what keeps its certificate, nil when others do.
type webhooks struct {
	server  webhook.Server
	rotator *certificate.Rotator
}

// newWebhooks makes the server before the manager, which is given it.
func newWebhooks(o webhookOptions, settings build.Settings, config *rest.Config, scheme *runtime.Scheme) (w webhooks, err error) {
	if err := o.validate(); err != nil || o.certMode == certificateOff {
		return w, err
	}
	reviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		return w, fmt.Errorf("set up the client for access reviews: %w", err)
	}
	asker, err := review.NewAsker(config, scheme, reviews)
	if err != nil {
		return w, err
	}
	serving := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // the server loads it again as it changes
		pair, err := tls.LoadX509KeyPair(filepath.Join(o.certDir, "tls.crt"), filepath.Join(o.certDir, "tls.key"))
		return &pair, err
	}
	options := webhook.Options{Host: o.host, Port: o.port, CertDir: o.certDir, TLSOpts: []func(*tls.Config){withoutHTTP2}}
	var clients *clientAuthorities
	if o.clientCA != "" {
		if clients, err = newClientAuthorities(o.clientCA, ctrl.Log.WithName("webhook-client-ca")); err != nil {
			return w, err
		}
		options.TLSOpts = append(options.TLSOpts, clients.ask)
	}
	if o.certMode == certificateSelf {
		inCluster := fmt.Sprintf("%s.%s.svc", o.service, o.namespace)
		w.rotator = &certificate.Rotator{
			Name: "webhook-certificate", Client: asker.Client, Clock: clock.RealClock{},
			Secret: types.NamespacedName{Namespace: o.namespace, Name: o.certSecret}, Configuration: o.configuration,
			Paths: map[string]string{
				trainingjobwebhook.ValidatingName: trainingjobwebhook.ValidatingPath,
				spotwebhook.JobName:               spotwebhook.JobPath,
				spotwebhook.VMName:                spotwebhook.VMPath,
			},
			Hosts: append([]string{o.service, inCluster, inCluster + ".cluster.local"}, o.certHosts...),
		}
		serving = w.rotator.GetCertificate
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = serving })
	}
	w.server = webhook.NewServer(options)
	cluster := review.Cluster{
		Asker: asker,
		FromAPIServer: func(request *http.Request) bool {
			return clients.signed(request) || w.rotator != nil && w.rotator.KnowsToken(request)
		},
	}
	trainingjobwebhook.Register(w.server, scheme, trainingjobwebhook.Options{
		DefaultImage: settings.DefaultImage,
		Check:        build.Check,
		Children:     func(job *mlv1.TrainingJob) []client.Object { return trainingjob.Children(job, settings) },
		Cluster:      cluster,
	})
	spotwebhook.Register(w.server, scheme, spotwebhook.Options{
		Replica: spotinstancejob.Replica, NotAllowed: spotinstancevm.NotAllowed, Cluster: cluster,
		TakesCheckpoints: func(ctx context.Context) (bool, error) {
			return checkpointbackup.IsServed(ctx, reviews.Discovery().RESTClient())
		},
	})
	aijobwebhook.Register(w.server, o.trusted())
	agentworkflowwebhook.Register(w.server, scheme)
	return w, ctrlmetrics.Registry.Register(metrics.NewCertificateExpiry(serving))
}

// addTo has every replica of the manager serve the webhooks, the leader or not. A replica is ready once its server
// answers with a certificate.
func (w webhooks) addTo(mgr ctrl.Manager) error {
	if w.server == nil {
		return nil
	}
	err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker())
	if w.rotator != nil {
		err = errors.Join(err, mgr.Add(w.rotator))
	}
	if err != nil {
		return fmt.Errorf("add the webhooks: %w", err)
	}
	return nil
}

// withoutHTTP2, which has had denial-of-service flaws; metrics and webhooks gain nothing from it.
func withoutHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }
