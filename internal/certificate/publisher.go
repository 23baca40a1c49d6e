package certificate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Publisher copies the authorities of a serving certificate from its Secret, which the Rotator or others keep, into a ConfigMap for clients. Every replica of the
// manager runs one: all of them write the same.
type Publisher struct {
	// Name in the log.
	Name string
	// Client asks the API server itself: what is in a Secret is kept in no cache.
	Client client.Client
	// Clock tells the time.
	Clock clock.WithTicker
	// Secret with ca.crt, and ConfigMap to write it to. A Secret without ca.crt has a certificate of a public authority: nothing is written.
	Secret, ConfigMap types.NamespacedName

	current atomic.Pointer[string]
}

// Authorities are the certificates that clients are to trust beside those of the system, in PEM; there may be none. They are not known
// before the Secret is.
func (p *Publisher) Authorities() (bundle string, known bool) {
	if current := p.current.Load(); current != nil {
		return *current, true
	}
	return "", false
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Publisher) NeedLeaderElection() bool { return false }

// Start copies until the context ends. It never ends with an error, as the Rotator does not.
func (p *Publisher) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName(p.Name).WithValues("secret", p.Secret, "configMap", p.ConfigMap)
	backoff := retries
	for {
		next := checkInterval
		switch exists, err := p.look(ctx, logger); {
		case err == nil && exists:
			backoff = retries
		case err == nil:
			backoff, next = retries, time.Second
		case ctx.Err() == nil:
			next = backoff.Step()
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica was faster
				logger.Error(err, "The certificate's authorities could not be published; trying again", "in", next.String())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.Clock.After(next):
		}
	}
}

func (p *Publisher) look(ctx context.Context, logger logr.Logger) (exists bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	secret := &corev1.Secret{}
	if err := p.Client.Get(ctx, p.Secret, secret); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	bundle, err := authorities(secret.Data[caKey])
	if err != nil {
		return false, fmt.Errorf("read %s of the Secret: %w", caKey, err)
	}
	if bundle != "" {
		if err := p.publish(ctx, bundle, logger); err != nil {
			return false, fmt.Errorf("write the ConfigMap: %w", err)
		}
	}
	p.current.Store(&bundle)
	return true, nil
}

// authorities are certificates and nothing else: the ConfigMap is for all to read.
func authorities(text []byte) (string, error) {
	if len(text) == 0 {
		return "", nil
	}
	certificates, err := certutil.ParseCertsPEM(text)
	if err != nil {
		return "", err
	}
	bundle, err := certutil.EncodeCertificates(certificates...)
	return string(bundle), err
}

func (p *Publisher) publish(ctx context.Context, bundle string, logger logr.Logger) error {
	published := &corev1.ConfigMap{}
	err := p.Client.Get(ctx, p.ConfigMap, published)
	switch {
	case apierrors.IsNotFound(err):
		published.ObjectMeta = metav1.ObjectMeta{
			Namespace: p.ConfigMap.Namespace, Name: p.ConfigMap.Name, Labels: map[string]string{"app.kubernetes.io/name": "spot-training-operator"},
		}
		published.Data = map[string]string{caKey: bundle}
		err = p.Client.Create(ctx, published)
	case err == nil && published.Data[caKey] == bundle:
		return nil
	case err == nil:
		before := published.DeepCopy()
		if published.Data == nil {
			published.Data = map[string]string{}
		}
		published.Data[caKey] = bundle
		err = p.Client.Patch(ctx, published, client.MergeFrom(before))
	}
	if err == nil {
		logger.Info("Published the certificate's authorities")
	}
	return err
}
