package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/gang"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// lookForKinds is how long to go by what the cluster was seen to serve. Kinds that are installed later are found then.
const lookForKinds = 15 * time.Second

// servedKinds remembers which kinds the cluster serves.
type servedKinds struct {
	known sync.Map // servedKind by schema.GroupKind
}

type servedKind struct {
	versions []string
	seen     time.Time
}

// version is the first of the versions in which the cluster serves the kind; empty when it serves none.
func (s *servedKinds) version(mapper meta.RESTMapper, now time.Time, kind schema.GroupKind, versions ...string) (string, error) {
	known, _ := s.known.Load(kind)
	found, _ := known.(servedKind)
	if now.Sub(found.seen) >= lookForKinds {
		mappings, err := mapper.RESTMappings(kind)
		if err != nil && !meta.IsNoMatchError(err) {
			return "", fmt.Errorf("ask which versions of %s are served: %w", kind, err)
		}
		found = servedKind{seen: now}
		for _, mapping := range mappings {
			found.versions = append(found.versions, mapping.GroupVersionKind.Version)
		}
		s.known.Store(kind, found)
	}
	for _, version := range versions {
		if slices.Contains(found.versions, version) {
			return version, nil
		}
	}
	return "", nil
}

// observeGang finds out who starts the workers together. Of a job that has workers their Job says it.
func (r *Reconciler) observeGang(_ context.Context, o *observed) error {
	if isFinished(&o.job.Status) {
		return nil
	}
	if build.LocalQueue(o.job) != "" && o.workers == nil {
		version, err := r.served.version(r.RESTMapper(), o.now, kueueWorkload, "v1beta2", "v1beta1", "v1")
		if err != nil {
			return err
		}
		o.kueue = version != ""
	}
	o.gang.scheduler, o.gang.named = gang.SchedulerOf(o.job)
	scheduler, ok := gang.For(o.gang.scheduler)
	if !ok || (o.workers != nil && o.workers.Annotations[mlv1.AnnotationGangScheduler] == "") {
		return nil
	}
	var err error
	o.gang.version, err = r.served.version(r.RESTMapper(), o.now, scheduler.Kind, scheduler.Versions...)
	return err
}

// observeQueue reads the Job from the API server when pods of a Job that Kueue manages are being stopped: whether Kueue did
// so may reach the cache later than that they are.
func (r *Reconciler) observeQueue(ctx context.Context, o *observed) error {
	if o.workers == nil || o.workers.Labels[build.KueueQueueLabel] == "" || isHeldByKueue(o.workers) ||
		!slices.ContainsFunc(o.workerPods(), podend.HasFailed) {
		return nil
	}
	now, err := reconciling.Get[batchv1.Job](ctx, r.Direct, o.workers.Namespace, o.workers.Name)
	if now != nil && now.UID == o.workers.UID {
		o.workers = now
	}
	return err
}
