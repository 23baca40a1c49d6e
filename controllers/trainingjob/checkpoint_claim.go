package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// readyBefore says whether checkpoints can be kept, where nothing but the agent could tell otherwise. Of a claim that is not bound that is
// not known before a pod waits for it.
func (p *planner) readyBefore() {
	if !build.CheckpointsEnabled(p.job) || build.UsesStore(p.job) || p.missingClaim != "" {
		return
	}
	known := meta.FindStatusCondition(p.status.Conditions, reasons.ConditionCheckpointReady)
	waited := known != nil && keepsFromStarting(known.Reason)
	if known != nil && known.Status == metav1.ConditionFalse && !waited && known.Reason != reasons.ClaimPending {
		return // until an agent says otherwise
	}
	claim := p.checkpointClaim()
	switch {
	case !build.UsesClaim(p.job), slices.ContainsFunc(p.workerPods(), hasNode), claim != nil && claims.IsBound(claim):
		p.condition(reasons.ConditionCheckpointReady, true, reasons.StorageReady, "checkpoints are kept "+whereKept(p.job))
	case claim != nil && (claim.Status.Phase == corev1.ClaimLost || p.workers != nil):
		p.condition(reasons.ConditionCheckpointReady, false, reasons.ClaimPending, p.describeUnbound(claim))
	case waited:
		meta.RemoveStatusCondition(&p.status.Conditions, reasons.ConditionCheckpointReady)
	}
}

// checkpointClaim is the claim of the checkpoints; nil when it does not exist, or when no pod waits for it.
func (o *observed) checkpointClaim() *corev1.PersistentVolumeClaim {
	found := reconciling.Find(o.claims, func(of *claims.Claim) bool { return of.Claim.UID != "" && of.Claim.Name == build.ClaimName(o.job) })
	if found == nil {
		return nil
	}
	return found.Claim
}

func (o *observed) describeUnbound(claim *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("PersistentVolumeClaim %s is %s%s; the workers start once it is bound: create a volume or the StorageClass for it",
		claim.Name, cmp.Or(claim.Status.Phase, corev1.ClaimPending), podend.Suffix(o.claimSays))
}

// observeUnbound reads what was last said of the claim of the checkpoints while pods wait for it.
func (r *Reconciler) observeUnbound(ctx context.Context, o *observed) (err error) {
	if claim := o.checkpointClaim(); o.workers != nil && claim != nil && !claims.IsBound(claim) {
		o.claimSays, err = r.lastEvent(ctx, claim, "")
	}
	return err
}
