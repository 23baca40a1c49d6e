package aijob

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// claimInterval is how often a claim is looked for that does not exist: claims of others are not watched.
const claimInterval = 15 * time.Second

// observeClaims reads the claims of a job that has a place, or that waits for a claim. While a job waits for room they do not matter, and
// thousands may.
func (r *Reconciler) observeClaims(ctx context.Context, o *observed) error {
	admitted := o.decided && o.decision.Admitted != nil
	if !isWaiting(o.job) || !admitted && !isHeldBack(&o.job.Status) {
		return nil
	}
	for _, name := range podbuild.Claims(&o.job.Spec.Settings) {
		claim, err := reconciling.Get[corev1.PersistentVolumeClaim](ctx, r.Direct, o.job.Namespace, name)
		if err != nil {
			return err
		}
		if claim == nil {
			o.missingClaim = name
			return nil
		}
		is, err := claims.Read(ctx, r.Direct, claim)
		if err != nil {
			return err
		}
		o.claims = append(o.claims, is)
	}
	return nil
}

// awaitsVolumes has a job wait that has a place where its volumes are not: the claims decide where it can run, and the queue has to know
// them first.
func (p *planner) awaitsVolumes(status *aiplatformv1alpha1.AIJobStatus) bool {
	topology := claims.Topology(p.claims)
	switch {
	case p.missingClaim != "":
		p.queueAgain(status, reasons.ClaimNotFound, claims.NotFound(p.job.Namespace, p.missingClaim, "spec.volumes"))
		p.lookAgain(claimInterval)
	case isHeldBack(status):
		p.queueAgain(status, reasons.Queued, "what kept the job from its queue is corrected")
	case equality.Semantic.DeepEqual(topology, status.VolumeTopology):
		return false
	default:
		p.queueAgain(status, reasons.Queued, "waits for nodes on which the volumes of its claims can be used")
	}
	status.VolumeTopology = topology
	return true
}

// isHeldBack says whether a job is in no queue until its spec is corrected, or what that names exists.
func isHeldBack(status *aiplatformv1alpha1.AIJobStatus) bool {
	return status.Phase == aiplatformv1alpha1.AIJobQueued && (status.Reason == reasons.ClaimNotFound || status.Reason == reasons.InvalidSpec)
}

// queueAgain says what a job waits for that keeps its age.
func (p *planner) queueAgain(status *aiplatformv1alpha1.AIJobStatus, reason, message string) {
	since := status.QueuedTime
	p.queue(status, reason, message)
	if since != nil {
		status.QueuedTime = since
	}
}
