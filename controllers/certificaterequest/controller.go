// Package certificaterequest approves the requests for certificates with which instances become nodes. A token of the operator's gives
// no certificate by itself: the instance that it was made for gets that of its own node, while this has not joined.
package certificaterequest

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// Reconciler approves requests of instances.
type Reconciler struct {
	// Client reads from the cache.
	client.Client
	// Direct reads Secrets from the API server.
	Direct client.Reader
}

// CachedObjects keep only the requests of kubelets in the manager's cache.
func CachedObjects() map[client.Object]cache.ByObject {
	kubelets := fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientKubeletSignerName)
	return map[client.Object]cache.ByObject{&certificatesv1.CertificateSigningRequest{}: {Field: kubelets}}
}

// The right to approve lies in config/node-join, beside that to make tokens.
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	byToken := predicate.NewPredicateFuncs(func(object client.Object) bool {
		request, ok := object.(*certificatesv1.CertificateSigningRequest)
		return ok && isOpen(request)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificaterequest").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(byToken)).
		Complete(r)
}

// isOpen says whether a request of the holder of a bootstrap token waits for a decision.
func isOpen(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Conditions) == 0 && nodejoin.TokenSecret(request.Spec.Username) != ""
}

// Reconcile approves a request that is that of an instance, and leaves all others alone.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	is, err := reconciling.Get[certificatesv1.CertificateSigningRequest](ctx, r, "", request.Name)
	if is == nil || !isOpen(is) {
		return ctrl.Result{}, err
	}
	token, err := reconciling.Get[corev1.Secret](ctx, r.Direct, metav1.NamespaceSystem, nodejoin.TokenSecret(is.Spec.Username))
	if token == nil || nodejoin.InstanceOf(token) == "" {
		return ctrl.Result{}, err
	}
	node, err := reconciling.Get[corev1.Node](ctx, r, "", nodejoin.InstanceOf(token))
	if err != nil {
		return ctrl.Result{}, err
	}
	logger := log.FromContext(ctx).WithValues("instance", nodejoin.InstanceOf(token), "request", is.Name)
	if refusal := nodejoin.CheckRequest(is, token, node); refusal != nil {
		logger.Info("Left certificate request unapproved", "reason", refusal.Error())
		return ctrl.Result{}, nil
	}
	if err := r.approve(ctx, is); err != nil {
		return ctrl.Result{}, err
	}
	logger.Info("Approved certificate request of instance")
	return ctrl.Result{}, nil
}

func (r *Reconciler) approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	next := request.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "InstanceJoins",
		Message: "the request is that of the instance that the token was made for",
	})
	if err := r.SubResource("approval").Update(ctx, next, child.FieldOwner); err != nil {
		return fmt.Errorf("approve certificate request %s: %w", request.Name, err)
	}
	return nil
}
