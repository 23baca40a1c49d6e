package trainingjob

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observeNodes reads the nodes of the pods of which only the node tells why they were lost. That is rare, so that no
// node is held in the cache.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	if o.workers == nil || finished(&o.job.Status) || attemptOf(o.workers) < o.job.Status.RestartCount {
		return nil
	}
	for _, pod := range doubtful(o.podsOf(o.workers.UID)) {
		name := pod.Spec.NodeName
		if _, known := o.nodes[name]; known || name == "" {
			continue
		}
		var is corev1.Node
		err := r.Direct.Get(ctx, client.ObjectKey{Name: name}, &is)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read node %s: %w", name, err)
		}
		if o.nodes == nil {
			o.nodes = map[string]*node{}
		}
		o.nodes[name] = nodeOf(&is, apierrors.IsNotFound(err))
	}
	return nil
}

func nodeOf(is *corev1.Node, gone bool) *node {
	known := &node{gone: gone, taints: is.Spec.Taints}
	for _, condition := range is.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			known.ready = condition.Status == corev1.ConditionTrue
		}
	}
	return known
}
