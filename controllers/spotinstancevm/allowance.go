package spotinstancevm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// observeAllowance reads what a cluster administrator allows the namespace. It says whether the provider may be asked for anything: where
// instances exist they are looked after, and deleted, although no more may be created.
func (r *Reconciler) observeAllowance(ctx context.Context, o *observed) (mayAsk bool, err error) {
	namespace, err := reconciling.Get[corev1.Namespace](ctx, r, "", o.vm.Namespace)
	if err != nil {
		return false, err
	}
	if namespace == nil { // the cache does not have it yet
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.vm.Namespace}}
	}
	o.forbidden = forbiddenIn(namespace)
	return !o.forbidden.exists() || o.mayHaveInstances(), nil
}

// mayHaveInstances says whether the status has any: no user can write it.
func (o *observed) mayHaveInstances() bool { return len(o.vm.Status.ProvisionedInstances) > 0 }

// forbiddenIn says why a namespace may not have instances.
func forbiddenIn(namespace *corev1.Namespace) problem {
	if namespace.Labels[spotv1alpha1.LabelSpotInstances] == spotv1alpha1.SpotInstancesAllowed {
		return problem{}
	}
	return problem{reason: reasons.NamespaceNotAllowed, message: fmt.Sprintf(
		"namespace %s may not have spot instances, which join the cluster as nodes; no instance is created: a cluster administrator allows them by "+
			"kubectl label namespace %[1]s %s=%s", namespace.Name, spotv1alpha1.LabelSpotInstances, spotv1alpha1.SpotInstancesAllowed)}
}

// allowedCondition says whether a cluster administrator allows what the spec asks for.
func (p *planner) allowedCondition() conditionValue {
	if p.forbidden.exists() {
		return p.forbidden.condition()
	}
	return conditionValue{metav1.ConditionTrue, reasons.NamespaceAllowed, "a cluster administrator allows the namespace to have spot instances"}
}

// barred says why no instance is asked for any more; empty when one may be.
func (p *planner) barred() string {
	switch {
	case p.isDeleting():
		return "the SpotInstanceVM is being deleted"
	case p.forbidden.exists():
		return "a cluster administrator does not allow it any more"
	default:
		return ""
	}
}
