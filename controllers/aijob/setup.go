package aijob

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// Options of the controller.
type Options struct {
	// Concurrency is how many jobs are reconciled at the same time.
	Concurrency int
	// Namespaces to watch; all when it is empty.
	Namespaces []string
}

// SetupWithManager registers the controller and what it watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	children, err := r.setUpChildren(ctx, mgr, options)
	if err != nil {
		return err
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(reconciling.ByLabel(aiplatformv1alpha1.LabelAIJob))
	return ctrl.NewControllerManagedBy(mgr).
		Named("aijob").
		WithOptions(reconciling.Options(options.Concurrency)).
		For(&aiplatformv1alpha1.AIJob{}).
		WatchesRawSource(source.Kind[client.Object](children, &corev1.Pod{}, byLabel)).
		WatchesRawSource(source.Kind[client.Object](children, &corev1.Service{}, byLabel)).
		WatchesRawSource(r.Decider.Changes(kindAIJob)).
		Complete(tracing.Reconciler("AIJob", r))
}

func (r *Reconciler) setUpChildren(ctx context.Context, mgr ctrl.Manager, options Options) (cache.Cache, error) {
	children, through, err := child.New(mgr, child.Options{
		Label: aiplatformv1alpha1.LabelAIJob, Namespaces: options.Namespaces,
		Kinds: map[client.Object]toolscache.TransformFunc{&corev1.Pod{}: child.Keep{Init: true}.Pods(), &corev1.Service{}: bareService},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the cache of pods and Services: %w", err)
	}
	r.children = child.Writer{Client: through, Direct: r.Direct}
	return children, reconciling.Index(ctx, children, &corev1.Pod{}, podJobIndex, func(pod *corev1.Pod) []string {
		return []string{pod.Labels[aiplatformv1alpha1.LabelAIJob]}
	})
}

// bareService keeps of a Service only whose it is.
func bareService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: service.Name, Namespace: service.Namespace, UID: service.UID, ResourceVersion: service.ResourceVersion,
		Labels: service.Labels, OwnerReferences: service.OwnerReferences,
	}}, nil
}
