package workerpool

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

func (r *Reconciler) apply(ctx context.Context, o observed, d desired, m *memory) error {
	if d.removeRights {
		for _, object := range []client.Object{clusterRoleBinding(o.queue, ""), clusterRole(o.queue)} {
			if err := r.remove(ctx, o.queue, object); err != nil {
				return err
			}
		}
		*m = memory{}
	}
	for _, one := range d.remove {
		if one.DeletionTimestamp != nil {
			continue
		}
		// The Deployment last: by it the rest is found again.
		for _, object := range []client.Object{serviceAccount(o.queue, one.Namespace), authorities(o.queue, one.Namespace, "")} {
			if err := r.remove(ctx, o.queue, object); err != nil {
				return err
			}
		}
		if err := r.writer(r.Client).Delete(ctx, one); err != nil {
			return err
		}
	}
	if d.removeRights || o.queue.Spec.Workers == nil {
		return nil
	}
	// The rights are compared when the queue changes, when its Deployment is written again, and when there are other authorities.
	if m.rightsOf != o.queue.Generation || d.deployment != nil && m.deployment == nil || o.trust.known && m.bundle != o.trust.bundle {
		for _, object := range rights(o.queue, r.Settings, o.trust) {
			live, err := r.read(ctx, object)
			if err != nil {
				return err
			}
			if err := r.writer(r.uncached).Ensure(ctx, o.queue, object, live); err != nil {
				return err
			}
		}
		m.rightsOf, m.bundle = o.queue.Generation, o.trust.bundle
	}
	if d.deployment == nil {
		return nil
	}
	return r.writeDeployment(ctx, o, d.deployment, m)
}

// writer writes through a client as this controller.
func (r *Reconciler) writer(to client.Client) child.Writer {
	return child.Writer{Client: to, Direct: r.Direct, FieldOwner: fieldOwner}
}

func (r *Reconciler) writeDeployment(ctx context.Context, o observed, wanted *appsv1.Deployment, m *memory) error {
	w := r.writer(r.Client)
	if m.deployment == nil {
		// A Deployment of another owner is not in the cache, which has only those of workers.
		found, err := reconciling.List[*appsv1.Deployment](ctx, r.Direct, &appsv1.DeploymentList{},
			client.InNamespace(wanted.Namespace), client.MatchingFields{metav1.ObjectNameField: wanted.Name})
		if err != nil {
			return err
		}
		for _, one := range found {
			if err := w.Check(o.queue, wanted, one); err != nil {
				return err
			}
		}
	}
	written := wanted.DeepCopy()
	if err := w.Apply(ctx, written, map[string]any{"spec": wanted.Spec}); err != nil {
		return err
	}
	if m.deployment == nil || *m.deployment.Spec.Replicas != *wanted.Spec.Replicas {
		log.FromContext(ctx).Info("Scaled workers", "deployment", client.ObjectKeyFromObject(wanted), "replicas", *wanted.Spec.Replicas,
			"waiting", o.answer.figures.Waiting, "running", o.answer.figures.Running)
	}
	m.deployment, m.generation = wanted, written.Generation
	return nil
}

// read returns the object of the same kind and name; nil when there is none.
func (r *Reconciler) read(ctx context.Context, wanted client.Object) (client.Object, error) {
	live := wanted.DeepCopyObject().(client.Object)
	if found, err := child.Find(ctx, r.Direct, client.ObjectKeyFromObject(wanted), live); !found {
		return nil, err
	}
	return live, nil
}

// remove deletes an object if it exists and belongs to the queue.
func (r *Reconciler) remove(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue, object client.Object) error {
	live, err := r.read(ctx, object)
	if err != nil || live == nil || !metav1.IsControlledBy(live, queue) {
		return err
	}
	return r.writer(r.uncached).Delete(ctx, live)
}
