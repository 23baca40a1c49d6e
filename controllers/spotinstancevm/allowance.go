package spotinstancevm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

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
	inProject := true
	if o.secret == "" && !o.access.exists() {
		var identity problem
		identity, inProject = identityForbiddenIn(namespace, &o.vm.Spec.GCP)
		if !o.forbidden.exists() {
			o.forbidden = identity
		}
	}
	return inProject && (!o.forbidden.exists() || o.mayHaveInstances()), nil
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

// NotAllowed says why a namespace may not have the instances of a new SpotInstanceVM; empty when it may.
func NotAllowed(namespace *corev1.Namespace, vm *spotv1alpha1.SpotInstanceVM) string {
	if forbidden := forbiddenIn(namespace); forbidden.exists() || vm.Spec.GCP.CredentialsSecretRef != nil {
		return forbidden.message
	}
	forbidden, _ := identityForbiddenIn(namespace, &vm.Spec.GCP)
	if !forbidden.exists() {
		return ""
	}
	return "spec.gcp.credentialsSecretRef: is not set; unless a SpotInstanceJob that names this SpotInstanceVM has a gcpCredentialsSecretRef: " + forbidden.message
}

// identityUse is a use of the operator's own identity, as AnnotationOperatorIdentity lists them.
type identityUse struct {
	Project        string `json:"project"`
	Network        string `json:"network,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// identityForbiddenIn says why the instances of a namespace may not be created with the operator's own identity, and whether it may at least look
// after what is in the project. Without a limit every user could spend its money, and act by it as any service account.
func identityForbiddenIn(namespace *corev1.Namespace, gcp *spotv1alpha1.GCP) (forbidden problem, inProject bool) {
	refused := func(format string, args ...any) problem {
		return problem{reason: reasons.IdentityNotAllowed, message: fmt.Sprintf(format, args...)}
	}
	var allowed []identityUse
	if text := namespace.Annotations[spotv1alpha1.AnnotationOperatorIdentity]; text != "" {
		if err := json.Unmarshal([]byte(text), &allowed); err != nil {
			return refused("annotation %s of namespace %s is not a valid list in JSON, so that the operator's own identity may not be used: %v: have a "+
				"cluster administrator correct it", spotv1alpha1.AnnotationOperatorIdentity, namespace.Name, err), false
		}
	}
	wanted := identityUse{Project: gcp.Project, Network: cmp.Or(gcp.Network, "default"), ServiceAccount: gcp.ServiceAccount}
	for _, use := range allowed {
		use.Network = cmp.Or(use.Network, "default")
		if use == wanted {
			return problem{}, true
		}
		inProject = inProject || use.Project == wanted.Project
	}
	list, _ := json.Marshal(append(slices.Clip(allowed), wanted)) // of texts alone, which can be encoded
	return refused("namespace %s may not use the operator's own identity in project %s with network %s and service account %q; no instance is created: name a "+
		"Secret in spec.gcp.credentialsSecretRef, or a cluster administrator allows it by kubectl annotate --overwrite namespace %[1]s %[5]s='%[6]s'",
		namespace.Name, wanted.Project, wanted.Network, wanted.ServiceAccount, spotv1alpha1.AnnotationOperatorIdentity, list), inProject
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
	case p.access.ending: // it waits for the end of all, also of those that would wait for another one
		return "the Secret with the credentials is being deleted"
	default:
		return ""
	}
}
