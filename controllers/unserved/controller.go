// Package unserved answers for the kinds whose controllers are not part of this version: it says so in the condition
// Ready of every object, so that nobody waits for something that will not happen. Each reconciliation observes, plans
// and reports; there is nothing to apply.
package unserved

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is an API object with conditions in its status.
type Object interface {
	client.Object
	// StatusConditions gives access to the conditions in the status.
	StatusConditions() *[]metav1.Condition
}

// Reconciler sets the condition of the objects of one kind.
type Reconciler struct {
	// Client reads from the cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Kind of the objects.
	Kind Kind
}

// fieldOwner is who the API server notes as the writer of the condition.
const fieldOwner = client.FieldOwner("spot-training-operator")

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs,verbs=list;watch
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs/status,verbs=patch

// SetupWithManager registers one controller for each of the Kinds.
func SetupWithManager(mgr ctrl.Manager) error {
	for _, kind := range Kinds() {
		r := &Reconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Kind: kind}
		err := ctrl.NewControllerManagedBy(mgr).
			Named("unserved-" + strings.ToLower(kind.Name)).
			For(kind.New()).
			Complete(r)
		if err != nil {
			return fmt.Errorf("set up the controller of %s: %w", kind.Name, err)
		}
	}
	return nil
}

// Reconcile sets the condition of one object, unless it says all there is to say already.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := r.Kind.New()
	if err := r.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("read the %s: %w", r.Kind.Name, err))
	}
	conditions := plan(observed{
		kind:       r.Kind.Name,
		generation: object.GetGeneration(),
		deleted:    object.GetDeletionTimestamp() != nil,
		conditions: *object.StatusConditions(),
		now:        r.Clock.Now(),
	})
	return ctrl.Result{}, r.report(ctx, object, conditions)
}

// report writes the conditions when they changed. An object that somebody else wrote in between comes back by the watch.
func (r *Reconciler) report(ctx context.Context, object Object, conditions []metav1.Condition) error {
	if unchanged(*object.StatusConditions(), conditions) {
		return nil
	}
	next := object.DeepCopyObject().(Object)
	*next.StatusConditions() = conditions
	lock := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	err := r.Status().Patch(ctx, next, lock, fieldOwner)
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("write the status of the %s: %w", r.Kind.Name, err)
}
