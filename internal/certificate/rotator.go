package certificate

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// defaultValidity is the life of a certificate; it is renewed when two thirds are over.
	defaultValidity = 365 * 24 * time.Hour

	// absentInterval is how often webhook configurations that do not exist are looked for.
	absentInterval = 5 * time.Second

	// checkInterval is how often the Secret and the webhook configurations are looked at. A look is three reads of
	// objects by their names: watching them would take permissions on more than these.
	checkInterval = time.Minute
)

// retries is when to look again after a failure.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 30 * time.Second}

// Rotator keeps a self-signed serving certificate. Every replica of the manager runs one, the leader or not: all use the
// certificate of one Secret. The replica that first sees that it is missing or due renews it; the Secret's
// resource version lets only one of them win, and the others take what it wrote.
//
// A new certificate is served only after clients were told to trust its authority, and the authority before it
// stays trusted, so that no call fails for a renewal.
type Rotator struct {
	// Name in the log.
	Name string
	// Client asks the API server itself: what is in a Secret is kept in no cache.
	Client client.Client
	// Clock tells the time.
	Clock clock.WithTicker
	// Secret is where the certificate is kept; it is created when it is missing.
	Secret types.NamespacedName
	// Configuration is the name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration whose
	// caBundle, and the paths of Paths, are kept up to date. One that does not exist is passed over until it does. Empty: none is kept.
	Configuration string
	// Paths are those of the webhooks, by their names, that the API server is to call at the path, a slash and a token, and which it
	// is told in the configurations. Others are called at the path that the configurations have.
	Paths map[string]string
	// Hosts are the names and addresses under which clients reach the server, at least one.
	Hosts []string
	// Lead is for how long the Secret has the authority of a new certificate before the certificate takes the place of the one before, where
	// others than the Rotator tell clients of authorities, or serve. Default: none.
	Lead time.Duration
	// Validity is the life of a certificate. Default: one year.
	Validity time.Duration

	current atomic.Pointer[pair]
}

// GetCertificate returns the certificate to serve, for tls.Config. There is none before the first look at the Secret.
func (r *Rotator) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := r.current.Load(); current != nil {
		return current.serving, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// KnowsToken says whether a request came to a path that ends in the token, which only the API server and those know who may read the
// Secret or the configurations.
func (r *Rotator) KnowsToken(request *http.Request) bool {
	current := r.current.Load()
	return current != nil && subtle.ConstantTimeCompare([]byte(path.Base(request.URL.Path)), []byte(current.token)) == 1
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Rotator) NeedLeaderElection() bool { return false }

// Start keeps the certificate until the context ends. It never ends with an error: the manager's other work does not
// depend on webhooks.
func (r *Rotator) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName(r.Name).WithValues("secret", r.Secret)
	backoff := retries
	for {
		next := checkInterval
		complete, err := r.look(ctx, logger)
		switch {
		case err == nil && complete:
			backoff = retries
		case err == nil:
			backoff, next = retries, absentInterval
		case ctx.Err() == nil:
			next = backoff.Step()
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica was faster
				logger.Error(err, "The serving certificate could not be kept; trying again", "in", next.String())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(next):
		}
	}
}

// look renews the certificate when it is due, tells the API server, and serves it. It is not complete while a webhook
// configuration does not exist.
func (r *Rotator) look(ctx context.Context, logger logr.Logger) (complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	good, err := r.ensure(ctx, logger)
	if err != nil {
		return false, err
	}
	complete = true
	if r.Configuration != "" {
		if complete, err = r.inject(ctx, good, logger); err != nil {
			return false, err
		}
	}
	if before := r.current.Swap(good); before == nil || !bytes.Equal(before.serving.Certificate[0], good.serving.Certificate[0]) {
		logger.Info("Using a serving certificate", "hosts", r.Hosts,
			"expires", good.serving.Leaf.NotAfter, "renewal", renewal(good.serving.Leaf))
	}
	return complete, nil
}

// ensure returns the certificate in the Secret, which it replaces when it is missing or due.
func (r *Rotator) ensure(ctx context.Context, logger logr.Logger) (good *pair, err error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Secret.Namespace, Name: r.Secret.Name}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, secret, func() error {
		now := r.Clock.Now()
		var why error
		if good, why = read(secret.Data, r.Hosts, now); why == nil {
			return nil
		}
		data, err := r.replacement(secret.Data, why, now)
		if err != nil || len(data) == 0 {
			return err
		}
		exists := secret.UID != ""
		logger.Info("Making a certificate", "exists", exists, "why", why.Error())
		if !exists {
			secret.Type, secret.Labels = corev1.SecretTypeTLS, map[string]string{"app.kubernetes.io/name": "spot-training-operator"}
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		maps.Copy(secret.Data, data)
		maps.DeleteFunc(secret.Data, func(_ string, value []byte) bool { return len(value) == 0 })
		good, err = read(secret.Data, r.Hosts, now)
		if due := (*dueError)(nil); r.Lead > 0 && errors.As(err, &due) {
			return nil // the next one is there
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keep the certificate in the Secret: %w", err)
	}
	return good, nil
}
