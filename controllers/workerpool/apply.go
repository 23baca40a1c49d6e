package workerpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// takenError says that an object is somebody else's.
type takenError struct{ kind, name string }

func (e *takenError) Error() string {
	return fmt.Sprintf("%s %s is there already and is not this queue's: delete it, or give the queue another name", e.kind, e.name)
}

func (r *Reconciler) apply(ctx context.Context, o observed, d desired, m *memory) error {
	logger := log.FromContext(ctx)
	if d.removeRights {
		if err := r.removeRights(ctx, o.queue); err != nil {
			return err
		}
		*m = memory{}
	}
	for _, one := range d.remove {
		if one.DeletionTimestamp != nil {
			continue
		}
		// The Deployment last: by it the rest is found again.
		if err := r.remove(ctx, o.queue, serviceAccount(o.queue, one.Namespace)); err != nil {
			return err
		}
		if err := client.IgnoreNotFound(r.Delete(ctx, one, client.Preconditions{UID: &one.UID})); err != nil {
			return fmt.Errorf("delete the Deployment of workers: %w", err)
		}
		logger.Info("removed the workers", "namespace", one.Namespace, "deployment", one.Name)
	}
	if d.removeRights || o.queue.Spec.Workers == nil {
		return nil
	}
	// The rights are looked at when the queue changes and when its Deployment has to be written anew.
	if m.rightsOf != o.queue.Generation || d.deployment != nil && m.deployment == nil {
		if err := r.writeRights(ctx, o.queue); err != nil {
			return err
		}
		m.rightsOf = o.queue.Generation
	}
	if d.deployment == nil {
		return nil
	}
	return r.writeDeployment(ctx, o, d.deployment, m)
}

func (r *Reconciler) writeRights(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue) error {
	for _, wanted := range rights(queue, r.Settings) {
		existing, err := r.mine(ctx, queue, wanted)
		if err != nil {
			return err
		}
		if existing != nil && same(wanted, existing) {
			continue
		}
		if err := write(ctx, r.uncached, wanted); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) writeDeployment(ctx context.Context, o observed, wanted *appsv1.Deployment, m *memory) error {
	if m.deployment == nil {
		if _, err := r.mine(ctx, o.queue, wanted); err != nil {
			return err
		}
	}
	written := wanted.DeepCopy()
	if err := write(ctx, r.Client, written); err != nil {
		return err
	}
	if m.deployment == nil || *m.deployment.Spec.Replicas != *wanted.Spec.Replicas {
		log.FromContext(ctx).Info("scaled the workers", "namespace", wanted.Namespace, "deployment", wanted.Name,
			"replicas", *wanted.Spec.Replicas, "waiting", o.answer.figures.Waiting, "running", o.answer.figures.Running)
	}
	m.deployment, m.generation = wanted, written.Generation
	return nil
}

// mine reads the object of the same kind and name, which must be the queue's; nil: there is none.
func (r *Reconciler) mine(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue, wanted client.Object) (client.Object, error) {
	kind := wanted.GetObjectKind().GroupVersionKind().Kind
	if kind == "Deployment" { // only those of workers are read, and one that has not their label is somebody else's
		return nil, r.isFree(ctx, queue, wanted)
	}
	existing := wanted.DeepCopyObject().(client.Object)
	switch err := r.Direct.Get(ctx, client.ObjectKeyFromObject(wanted), existing); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the %s of the workers: %w", kind, err)
	case !metav1.IsControlledBy(existing, queue):
		return nil, &takenError{kind, wanted.GetName()}
	}
	return existing, nil
}

// isFree looks for a Deployment of the name that is not the queue's. It is not in the cache.
func (r *Reconciler) isFree(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue, wanted client.Object) error {
	var list appsv1.DeploymentList
	if err := r.Direct.List(ctx, &list, client.InNamespace(wanted.GetNamespace()), client.MatchingFields{"metadata.name": wanted.GetName()}); err != nil {
		return fmt.Errorf("look for the Deployment of the workers: %w", err)
	}
	for i := range list.Items {
		if !metav1.IsControlledBy(&list.Items[i], queue) {
			return &takenError{"Deployment", wanted.GetNamespace() + "/" + wanted.GetName()}
		}
	}
	return nil
}

// same says whether nobody has changed what this controller writes.
func same(wanted, existing client.Object) bool {
	if !equality.Semantic.DeepDerivative(wanted.GetLabels(), existing.GetLabels()) ||
		!equality.Semantic.DeepEqual(wanted.GetOwnerReferences(), existing.GetOwnerReferences()) {
		return false
	}
	switch wanted := wanted.(type) {
	case *rbacv1.ClusterRole:
		return equality.Semantic.DeepEqual(wanted.Rules, existing.(*rbacv1.ClusterRole).Rules)
	case *rbacv1.ClusterRoleBinding:
		return equality.Semantic.DeepEqual(wanted.Subjects, existing.(*rbacv1.ClusterRoleBinding).Subjects)
	case *corev1.ServiceAccount:
		return equality.Semantic.DeepEqual(wanted.AutomountServiceAccountToken, existing.(*corev1.ServiceAccount).AutomountServiceAccountToken)
	}
	return false
}

// write applies an object: the fields that it has are this controller's, whoever changed them.
func write(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	delete(content, "status") // not ours to write
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if err := c.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, text), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("write the %s of the workers: %w", kind, err)
	}
	return nil
}

// removeRights deletes what let the workers take tasks.
func (r *Reconciler) removeRights(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue) error {
	for _, object := range []client.Object{clusterRoleBinding(queue, ""), clusterRole(queue)} {
		if err := r.remove(ctx, queue, object); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object, if it is there and the queue's.
func (r *Reconciler) remove(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue, object client.Object) error {
	existing, err := r.mine(ctx, queue, object)
	var taken *takenError
	switch {
	case errors.As(err, &taken) || err == nil && existing == nil:
		return nil
	case err != nil:
		return err
	}
	uid := existing.GetUID()
	if err := client.IgnoreNotFound(r.uncached.Delete(ctx, existing, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete the %s of the workers: %w", object.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return nil
}
