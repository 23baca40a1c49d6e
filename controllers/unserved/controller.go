// Package unserved has objects say that they wait for an operator of the whole cluster. It runs in the place of the controllers that an
// operator cannot have that is limited to some namespaces.
package unserved

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// conditioned is an object with conditions.
type conditioned interface {
	client.Object
	StatusConditions() *[]metav1.Condition
}

// Reconciler writes the condition into objects of one kind.
type Reconciler struct {
	// Client reads from the manager's cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock

	empty   conditioned
	message string
}

// kinds are those that are not served, each with the reason.
var kinds = []struct {
	name  string
	empty conditioned
	why   string
}{
	{"SpotInstanceVM", &spotv1alpha1.SpotInstanceVM{}, "instances become Nodes, which are in no namespace"},
	{"AIJob", &aiplatformv1alpha1.AIJob{}, "who places its pods must know the pods of all namespaces"},
	{"Agent", &aiplatformv1alpha1.Agent{}, "the AIJobs of workflows are placed by who must know the pods of all namespaces"},
	{"AgentWorkflow", &aiplatformv1alpha1.AgentWorkflow{}, "its AIJobs are placed by who must know the pods of all namespaces"},
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs;agents;agentworkflows,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs/status;agents/status;agentworkflows/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms/status,verbs=patch,namespace=system

// SetupWithManager registers a controller for each kind that is not served. It looks at an object when it comes or its spec changes, and at
// all when the manager starts: where another operator acts on the same object by mistake, the two must not answer each other.
func SetupWithManager(mgr ctrl.Manager, now clock.PassiveClock) error {
	for _, kind := range kinds {
		r := &Reconciler{Client: mgr.GetClient(), Clock: now, empty: kind.empty, message: fmt.Sprintf(
			"%s: this namespace is served by an operator that is limited to namespaces (--namespaces); use one that serves all of them, or delete the %s",
			kind.why, kind.name)}
		err := ctrl.NewControllerManagedBy(mgr).
			Named("unserved-"+strings.ToLower(kind.name)).
			For(kind.empty, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Complete(r)
		if err != nil {
			return fmt.Errorf("set up what answers each %s: %w", kind.name, err)
		}
	}
	return nil
}

// Reconcile writes the condition Ready into an object.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := r.empty.DeepCopyObject().(conditioned)
	if err := r.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	next := object.DeepCopyObject().(conditioned)
	reporting.Set(next.StatusConditions(), object.GetGeneration(), r.Clock.Now(), reasons.ConditionReady, metav1.ConditionFalse,
		reasons.ClusterScopeRequired, r.message)
	if equality.Semantic.DeepEqual(object.StatusConditions(), next.StatusConditions()) {
		return ctrl.Result{}, nil
	}
	told := reporting.Transition{Before: *object.StatusConditions(), After: *next.StatusConditions()}
	if err := reporting.Patch(ctx, r, object, next); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	reporting.Tell(ctx, nil, object, told)
	return ctrl.Result{}, nil
}
