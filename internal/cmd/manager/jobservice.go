package manager

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/certificate"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

const (
	// jobServiceName is the Service of the job service, in the operator's namespace.
	jobServiceName = "spot-training-operator-job-service"
	// jobServiceAuthorities is the ConfigMap with the authorities of its certificate.
	jobServiceAuthorities = jobServiceName + "-ca"
	// certificateSecret is that a Secret has the certificate that others keep.
	certificateSecret = "secret"
	// certificateLead gives clients that have a copy of the authorities the time to get the new ones.
	certificateLead = 30 * 24 * time.Hour
	// plainHTTPVariable is the environment's --job-service-plain-http, and the job service's --plain-http: a Subscription of OLM can set
	// variables, of both at once, but no flags.
	plainHTTPVariable = "JOB_SERVICE_PLAIN_HTTP"
)

// jobServiceOptions are the flags about how the job service is reached.
type jobServiceOptions struct {
	url        string
	certMode   string
	certSecret string
	certHosts  []string
	plainHTTP  bool
}

func (o *jobServiceOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.url, "job-service-url", "",
		"where the manager and pooled workers reach the job service (default: https://"+jobServiceName+".NAMESPACE.svc:8000, in the manager's namespace; "+
			"http:// with --job-service-plain-http, and with --job-service-cert-mode=off)")
	flags.StringVar(&o.certMode, "job-service-cert-mode", certificateOff,
		"where the job service's certificate comes from: self (made and renewed by the manager, kept in --job-service-cert-secret), secret (others keep it "+
			"there), or off (the manager has nothing to do with it). In the first two modes the authorities in the Secret, ca.crt, are published in the "+
			"ConfigMap "+jobServiceAuthorities+", and the manager and pooled workers trust them")
	flags.StringVar(&o.certSecret, "job-service-cert-secret", jobServiceName+"-certificate",
		"Secret in the manager's namespace with the job service's certificate, in the modes self and secret")
	flags.StringSliceVar(&o.certHosts, "job-service-cert-hosts", nil,
		"more host names and addresses that the job service's certificate is good for in mode self, where clients do not reach it by its Service or on localhost")
	plain, _ := strconv.ParseBool(os.Getenv(plainHTTPVariable))
	flags.BoolVar(&o.plainHTTP, "job-service-plain-http", plain,
		"the job service is served by plain HTTP, as with its --plain-http (environment: "+plainHTTPVariable+")")
}

// validate names the flag that is wrong, and the way out.
func (o *jobServiceOptions) validate(namespace string) error {
	switch o.certMode {
	case certificateOff:
		return nil
	case certificateSelf, certificateSecret:
		if namespace == "" {
			return fmt.Errorf("--namespace: is not set, but the Secret of --job-service-cert-mode=%s is there: set it, or the environment variable %s",
				o.certMode, namespaceVariable)
		}
		if o.certSecret == "" {
			return errors.New("--job-service-cert-secret: is empty: name a Secret")
		}
		return nil
	}
	return fmt.Errorf("--job-service-cert-mode: %q is none of self, secret and off", o.certMode)
}

// address is the URL of the job service.
func (o *jobServiceOptions) address(namespace string) string {
	if o.url != "" {
		return o.url
	}
	scheme := "https"
	if o.certMode == certificateOff || o.plainHTTP {
		scheme = "http"
	}
	return fmt.Sprintf("%s://%s.%s.svc:8000", scheme, jobServiceName, namespace)
}

// addCertificate has every replica of the manager, the leader or not, keep the job service's certificate and publish its authorities, also where
// it is served by plain HTTP: its pods mount the Secret. What is returned tells the authorities; nil: there are none beside those of the system.
func (o *jobServiceOptions) addCertificate(mgr ctrl.Manager, namespace string) (authorities func() (bundle string, known bool), err error) {
	if o.certMode == certificateOff {
		return nil, nil
	}
	direct, err := child.Uncached(mgr)
	if err != nil {
		return nil, err
	}
	const name = "job-service-certificate"
	secret := types.NamespacedName{Namespace: namespace, Name: o.certSecret}
	publisher := &certificate.Publisher{
		Name: name, Client: direct, Clock: clock.RealClock{}, Secret: secret,
		ConfigMap: types.NamespacedName{Namespace: namespace, Name: jobServiceAuthorities},
	}
	err = mgr.Add(publisher)
	if o.certMode == certificateSelf {
		inNamespace := jobServiceName + "." + namespace
		err = errors.Join(err, mgr.Add(&certificate.Rotator{
			Name: name, Client: direct, Clock: clock.RealClock{}, Secret: secret, Lead: certificateLead,
			// By localhost a port is forwarded.
			Hosts: append([]string{
				jobServiceName, inNamespace, inNamespace + ".svc", inNamespace + ".svc.cluster.local", "localhost", "127.0.0.1",
			}, o.certHosts...),
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("add what keeps the job service's certificate: %w", err)
	}
	if o.plainHTTP {
		return nil, nil
	}
	return publisher.Authorities, nil
}
