package trainingjob

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// observeClaims reads the claims of a job while it has no workers, or has some that wait for a node, perhaps because of a claim. Those that
// the spec names are read from the API server: the cache holds the operator's own objects only.
func (r *Reconciler) observeClaims(ctx context.Context, o *observed) error {
	if isFinished(&o.job.Status) || o.workers != nil && !slices.ContainsFunc(o.workerPods(), o.lacksNode) {
		return nil
	}
	if build.CreatesClaim(o.job) {
		own, _ := o.children[childKey(build.Claim(o.job))].(*corev1.PersistentVolumeClaim)
		if own == nil {
			own = build.Claim(o.job)
		}
		if err := r.observeClaim(ctx, o, own); err != nil {
			return err
		}
	}
	for _, name := range build.NamedClaims(build.ResolveResume(o.job, o.resume)) {
		claim, err := reconciling.Get[corev1.PersistentVolumeClaim](ctx, r.Direct, o.job.Namespace, name)
		if err != nil {
			return err
		}
		if claim == nil {
			o.missingClaim = name
			return nil
		}
		if err := r.observeClaim(ctx, o, claim); err != nil {
			return err
		}
	}
	return nil
}

// observeClaim adds a claim. What it is bound to, and its class, matter in an AIJobQueue only: elsewhere kube-scheduler chooses the nodes.
func (r *Reconciler) observeClaim(ctx context.Context, o *observed, claim *corev1.PersistentVolumeClaim) (err error) {
	is := claims.Claim{Claim: claim}
	if build.QueueName(o.job) != "" {
		is, err = claims.Read(ctx, r.Direct, claim)
	}
	o.claims = append(o.claims, is)
	return err
}

// lacksNode says whether a pod has waited for its node for longer than it takes the scheduler to find one.
func (o *observed) lacksNode(pod *corev1.Pod) bool {
	since := pod.CreationTimestamp
	if refused := podend.SchedulingRefused(pod); refused != nil {
		since = refused.LastTransitionTime
	}
	return !hasNode(pod) && pod.DeletionTimestamp == nil && !o.now.Before(since.Add(scheduling))
}

// hasNode says whether kube-scheduler has found a node for a pod, for which its claims must be bound.
func hasNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending
}

// volumeTopology are the selectors that the nodes of a job must match for its volumes.
func (o *observed) volumeTopology() []corev1.NodeSelector { return claims.Topology(o.claims) }

// bindingClaim is the first of the claims that is being bound: a volume is being made for it, or is to be made without regard to pods. Nil
// when there is none.
func (o *observed) bindingClaim() *corev1.PersistentVolumeClaim {
	for _, of := range o.claims {
		immediate := of.Class != nil && ptr.Deref(of.Class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate
		if !claims.IsBound(of.Claim) && (immediate || volume.IsDelayBindingProvisioning(of.Claim)) {
			return of.Claim
		}
	}
	return nil
}

// unboundClaims is in what kube-scheduler says of a pod while its claims are not bound, until it looks at the pod again.
const unboundClaims = "unbound immediate PersistentVolumeClaims"

// awaitsVolumes says whether pods have no node because volumes are being bound, or were a moment ago; detail is what the scheduler says.
func (o *observed) awaitsVolumes(detail string) bool {
	if o.bindingClaim() != nil {
		return true
	}
	unbound := slices.ContainsFunc(o.claims, func(of claims.Claim) bool { return !claims.IsBound(of.Claim) })
	return len(o.claims) > 0 && !unbound && strings.Contains(detail, unboundClaims)
}
