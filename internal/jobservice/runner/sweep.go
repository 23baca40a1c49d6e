package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// recheck is how many sweeps pass before the store is asked about the same AIJob again.
const recheck = 5

// sweep deletes AIJobs some time after their end, and cancels those whose jobs have ended without them, for example while no replica ran.
func (d *Dispatcher) sweep(ctx context.Context) {
	if err := d.sweepOnce(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("Cannot clean up finished AIJobs", "error", err)
	}
}

func (d *Dispatcher) sweepOnce(ctx context.Context) error {
	var aijobs aiplatformv1alpha1.AIJobList
	// Nothing here changes what the cache holds.
	if err := d.cluster.cached.List(ctx, &aijobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list AIJobs: %w", err)
	}
	now := time.Now()
	seen := map[types.UID]bool{}
	var errs []error
	for i := range aijobs.Items {
		aijob := &aijobs.Items[i]
		seen[aijob.UID] = true
		if ctx.Err() != nil || !d.worthAsking(aijob, now) {
			continue
		}
		err := d.tidy(ctx, aijob)
		if errors.Is(err, jobs.ErrUnavailable) {
			return err
		}
		errs = append(errs, err)
	}
	for uid := range d.checked {
		if !seen[uid] {
			delete(d.checked, uid)
		}
	}
	return errors.Join(errs...)
}

// worthAsking says whether an AIJob may be done with, without asking the store.
func (d *Dispatcher) worthAsking(aijob *aiplatformv1alpha1.AIJob, now time.Time) bool {
	id := idOf(aijob)
	if id == "" || !aijob.DeletionTimestamp.IsZero() {
		return false
	}
	if _, ours := d.task(id); ours {
		return false
	}
	if end := aijob.Status.CompletionTime; aijob.Status.Phase.Ended() && (end == nil || now.Sub(end.Time) < d.settings.TTL) {
		return false
	}
	// One that was made just now may not be known to be leased here, or its lease may be on its way.
	if now.Sub(aijob.CreationTimestamp.Time) < d.settings.Sweep && !aijob.Status.Phase.Ended() {
		return false
	}
	if last, asked := d.checked[aijob.UID]; asked && now.Sub(last) < recheck*d.settings.Sweep {
		return false
	}
	d.checked[aijob.UID] = now
	return true
}

// tidy deletes or cancels an AIJob whose job has ended. What the store does not know is left alone: another installation of the
// service may share the cluster.
func (d *Dispatcher) tidy(ctx context.Context, aijob *aiplatformv1alpha1.AIJob) error {
	id := idOf(aijob)
	job, err := d.store.Get(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for job %s: %w", id, err)
	}
	if !job.Status.Ended() || job.Namespace != aijob.Namespace || job.Executor != jobs.Kubernetes {
		return nil
	}
	if !aijob.Status.Phase.Ended() {
		return d.cancelAIJob(ctx, client.ObjectKeyFromObject(aijob), id)
	}
	err = d.cluster.direct.Delete(ctx, aijob.DeepCopy(), client.Preconditions{
		UID: ptr.To(aijob.UID), ResourceVersion: ptr.To(aijob.ResourceVersion), // one that was queued again meanwhile stays
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	d.metrics.request("delete", err)
	if err != nil {
		return fmt.Errorf("delete AIJob %s/%s: %w", aijob.Namespace, aijob.Name, err)
	}
	d.log.Info("Deleted AIJob", "job", id, "namespace", aijob.Namespace, "name", aijob.Name)
	return nil
}
