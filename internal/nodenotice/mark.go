package nodenotice

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// conflicts with the kubelet's own writes are likely: a node that goes reports it at the same time. The tries end
// within five seconds.
var conflicts = wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.2, Cap: time.Second}

// Mark leaves the notice on its Node: the time and the source as annotations, and a taint that keeps new pods off, in one
// patch. The first notice wins, except that any other notice replaces a host's maintenance, which is further
// off. Marking again changes nothing. A client that reads from a cache will do.
//
// It returns the API server's error, such as NotFound for a node that is not, or no longer, there.
func Mark(ctx context.Context, c client.Client, nodeName string, notice Notice) error {
	if err := change(ctx, c, nodeName, func(node *corev1.Node) { mark(node, notice) }); err != nil {
		return fmt.Errorf("mark node %s as going away: %w", nodeName, err)
	}
	return nil
}

// Clear takes a notice of one of the sources off its Node again, with the taint; a notice of another source stays. A node
// that is not there has none.
func Clear(ctx context.Context, c client.Client, nodeName string, sources ...Source) error {
	err := change(ctx, c, nodeName, func(node *corev1.Node) { unmark(node, sources) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the notice off node %s: %w", nodeName, err)
	}
	return nil
}

// change reads a node and patches what edit changed of it, if anything. Taints are a list that is written as a whole,
// hence the optimistic lock.
func change(ctx context.Context, c client.Client, nodeName string, edit func(*corev1.Node)) error {
	return retry.RetryOnConflict(conflicts, func() error {
		var node corev1.Node
		if err := c.Get(ctx, types.NamespacedName{Name: nodeName}, &node); err != nil {
			return err
		}
		edited := node.DeepCopy()
		edit(edited)
		if equality.Semantic.DeepEqual(&node, edited) {
			return nil
		}
		return c.Patch(ctx, edited, client.MergeFromWithOptions(&node, client.MergeFromWithOptimisticLock{}))
	})
}

func mark(node *corev1.Node, notice Notice) {
	_, marked := node.Annotations[spotv1alpha1.AnnotationPreemptionNotice]
	maintenance := Source(node.Annotations[spotv1alpha1.AnnotationPreemptionSource]) == HostMaintenance
	if !marked || maintenance && notice.Source != HostMaintenance {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[spotv1alpha1.AnnotationPreemptionNotice] = notice.Time.UTC().Format(time.RFC3339Nano)
		node.Annotations[spotv1alpha1.AnnotationPreemptionSource] = string(notice.Source)
	}
	if !slices.ContainsFunc(node.Spec.Taints, isMark) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: spotv1alpha1.TaintPreemption, Effect: corev1.TaintEffectNoSchedule})
	}
}

func unmark(node *corev1.Node, sources []Source) {
	if !slices.Contains(sources, Source(node.Annotations[spotv1alpha1.AnnotationPreemptionSource])) {
		return
	}
	delete(node.Annotations, spotv1alpha1.AnnotationPreemptionNotice)
	delete(node.Annotations, spotv1alpha1.AnnotationPreemptionSource)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isMark)
}

func isMark(taint corev1.Taint) bool { return taint.Key == spotv1alpha1.TaintPreemption }
