package storageversion

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/olm/operatorcondition"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// Options say what is migrated and how fast. All fields are required unless they have a default.
type Options struct {
	// CRDs are the names of the CRDs whose objects are migrated.
	CRDs []string
	// Client reads CRDs and patches their status. It must not have a cache: that would list and watch all CRDs.
	Client client.Client
	// Metadata lists and patches the objects.
	Metadata metadata.Interface
	// Recorder emits events about CRDs.
	Recorder events.EventRecorder
	// Metrics counts what happens.
	Metrics *metrics.StorageMigrations
	// Progress is told how far the migrations are.
	Progress *Progress
	// Hold is called before the first object of a kind is written, and must see to it that the operator is not
	// upgraded until the migration has ended; the migration waits for its success. Default: nothing holds.
	Hold func(ctx context.Context, verdict operatorcondition.Verdict) error
	// QPS is the number of objects written per second, of all kinds together. Default 100.
	QPS float32
	// Resync is how often every CRD is looked at again. Default 5 minutes.
	Resync time.Duration
	// Settle is how long a CRD must be known unchanged before its objects are written: an API server among several
	// that has not heard of the change still stores the older version. Default 10 s.
	Settle time.Duration
	// PageSize is the number of objects listed at a time. Default 500.
	PageSize int64
	// Retry and RetryLimit are how long to wait after a failed round: Retry, doubling up to RetryLimit. Default 5 s
	// and 5 minutes.
	Retry, RetryLimit time.Duration
}

// Migrator migrates the stored objects of each CRD whenever that becomes necessary. It looks at a CRD when it starts,
// when the CRD changes and at every resync; a CRD with nothing to migrate costs that one read.
//
// A migration that was interrupted starts again from the first object. Writing an object that is stored in the right
// version already changes nothing in the API server's storage.
type Migrator struct {
	options Options
	limiter flowcontrol.RateLimiter

	mu   sync.Mutex
	seen map[string]sighting
}

// sighting is when a generation of a CRD was first seen.
type sighting struct {
	uid        types.UID
	generation int64
	at         time.Time
}

// New returns a migrator.
func New(options Options) *Migrator {
	options.QPS = cmp.Or(options.QPS, 100)
	options.Resync = cmp.Or(options.Resync, 5*time.Minute)
	options.Settle = cmp.Or(options.Settle, 10*time.Second)
	options.PageSize = cmp.Or(options.PageSize, 500)
	options.Retry = cmp.Or(options.Retry, 5*time.Second)
	options.RetryLimit = cmp.Or(options.RetryLimit, 5*time.Minute)
	return &Migrator{
		options: options,
		limiter: flowcontrol.NewTokenBucketRateLimiter(options.QPS, max(1, int(options.QPS/4))),
		seen:    map[string]sighting{},
	}
}

// SetupWithManager has the manager run the migrator while it is the leader.
func (m *Migrator) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("storage-migration").
		WithOptions(controller.Options{
			// One kind does not wait for another; together they keep to QPS.
			MaxConcurrentReconciles: len(m.options.CRDs),
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				m.options.Retry, m.options.RetryLimit),
		}).
		WatchesRawSource(m.source()).
		Complete(m)
}

// Reconcile migrates the objects of one CRD, if that is necessary.
func (m *Migrator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result, err := m.reconcile(ctx, request.Name)
	if err == nil || ctx.Err() != nil { // the migrator is stopping
		return result, nil
	}
	m.options.Metrics.Failed(request.Name)
	m.options.Progress.update(request.Name, func(kind *kindProgress) { kind.problem = err.Error() })
	return ctrl.Result{}, err
}

func (m *Migrator) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := m.options.Client.Get(ctx, client.ObjectKey{Name: name}, crd)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read the CRD %s: %w", name, err)
	}
	need := needOf(crd) // nothing, when the CRD does not exist
	if !need.any() {
		m.settled(name)
		return ctrl.Result{}, nil
	}
	m.options.Progress.update(name, func(kind *kindProgress) {
		kind.known, kind.need = true, need
	})
	if hold := m.options.Hold; hold != nil {
		if err := hold(ctx, verdict(map[string]kindProgress{name: {need: need}})); err != nil {
			return ctrl.Result{}, fmt.Errorf("hold back upgrades of the operator, before the objects of %s are stored as %s: %w", name, need.to, err)
		}
	}
	if wait := m.settling(crd); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return m.migrate(ctx, crd, need)
}

// settled notes that there is nothing to migrate.
func (m *Migrator) settled(name string) {
	m.options.Metrics.Remaining(name, 0)
	m.options.Progress.update(name, func(kind *kindProgress) { *kind = kindProgress{known: true} })
}

// settling returns how long to wait until the CRD has been known unchanged for long enough.
func (m *Migrator) settling(crd *apiextensionsv1.CustomResourceDefinition) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	seen, ok := m.seen[crd.Name]
	if !ok || seen.uid != crd.UID || seen.generation != crd.Generation {
		seen = sighting{crd.UID, crd.Generation, now}
		m.seen[crd.Name] = seen
	}
	return seen.at.Add(m.options.Settle).Sub(now)
}

// migrate has every object rewritten and then takes the older versions off the CRD's list of stored versions. It
// starts over when the CRD changed meanwhile, since what it wrote may then be stored in another version again.
func (m *Migrator) migrate(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, n need) (ctrl.Result, error) {
	log := ctrl.LoggerFrom(ctx).WithValues("crd", crd.Name, "from", n.from, "to", n.to)
	log.Info("Migrating stored objects")
	count, err := m.rewriteAll(ctx, crd, n)
	if err == nil {
		var again bool
		if again, err = m.trim(ctx, crd, n); again {
			log.Info("The CRD changed during the migration: starting over")
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		}
	}
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	if err != nil {
		reporting.Tell(ctx, m.options.Recorder, crd, reporting.Transition{}, reporting.Warning(reasons.EventStorageMigrationFailed,
			"MigrateStorage", "Not all objects are stored as %s yet, will be tried again: %s", n.to, shorten(err.Error())))
		return ctrl.Result{}, err
	}
	m.settled(crd.Name)
	reporting.Tell(ctx, m.options.Recorder, crd, reporting.Transition{}, reporting.Normal(reasons.EventStorageMigrated,
		"MigrateStorage", "All objects (%d) are stored as %s; none is stored as %s any more", count, n.to, strings.Join(n.from, ", ")))
	return ctrl.Result{}, nil
}

// trim takes the older versions off the CRD's list, unless its spec changed since the migration began. Others may write
// the rest of the CRD at any time.
func (m *Migrator) trim(ctx context.Context, before *apiextensionsv1.CustomResourceDefinition, n need) (again bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &apiextensionsv1.CustomResourceDefinition{}
		err := m.options.Client.Get(ctx, client.ObjectKeyFromObject(before), now)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the CRD %s: %w", before.Name, err)
		}
		if now.UID != before.UID || now.Generation != before.Generation {
			again = true
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": now.ResourceVersion},
			"status":   map[string]any{"storedVersions": []string{n.to}},
		})
		if err != nil {
			return err
		}
		err = m.options.Client.Status().Patch(ctx, now, client.RawPatch(types.MergePatchType, patch), child.FieldOwner)
		if err != nil {
			return fmt.Errorf("write status.storedVersions of the CRD %s: %w", before.Name, err)
		}
		return nil
	})
	return again, err
}

// shorten keeps a text within what an event can hold.
func shorten(text string) string {
	const limit = 900 // of 1024, with what stands around it
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

// Needed says what must be migrated of the CRDs of these names, in the words of a verdict. It only reads.
func Needed(ctx context.Context, reader client.Reader, crds []string) (operatorcondition.Verdict, error) {
	needed := map[string]kindProgress{}
	var failed []error
	for _, name := range crds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, crd)
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("read the CRD %s: %w", name, err))
			continue
		}
		if n := needOf(crd); n.any() {
			needed[name] = kindProgress{need: n}
		}
	}
	return verdict(needed), errors.Join(failed...)
}
