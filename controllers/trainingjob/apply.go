package trainingjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// kindTrainingJob is the kind that owns the children.
const kindTrainingJob = "TrainingJob"

// fieldOwner owns, for server-side apply, the fields that the operator sets.
const fieldOwner = client.FieldOwner("spot-training-operator")

// strangerError says that an object with the name of a child exists and is not the job's.
type strangerError struct{ kind, name string }

func (e *strangerError) Error() string {
	return fmt.Sprintf("%s %s exists and does not belong to this job: delete or rename it, or give the job another name", e.kind, e.name)
}

// errLeftover says that a child of an earlier job of the same name is still being deleted.
var errLeftover = errors.New("children of an earlier job of this name are still being deleted")

// apply makes what exists what should be. Every step can be done again: a crash after any of them leads to the same.
func (r *Reconciler) apply(ctx context.Context, o observed, d desired) error {
	for pod, grace := range d.expelled {
		if err := r.expel(ctx, pod, grace); err != nil {
			return err
		}
	}
	for _, object := range d.delete {
		if err := r.remove(ctx, object); err != nil {
			return err
		}
	}
	for _, object := range d.apply {
		if err := r.ensure(ctx, o, object); err != nil {
			return err
		}
	}
	for pod, with := range d.label {
		if err := r.label(ctx, pod, with); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the object that was seen, not one of the same name that came after it.
func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	if group, ok := object.(*unstructured.Unstructured); ok {
		return r.removeGroup(ctx, group)
	}
	uid := object.GetUID()
	err := r.Delete(ctx, object.DeepCopyObject().(client.Object),
		client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// expel deletes a pod within a grace period in seconds; one that is being deleted is told that it has less time.
func (r *Reconciler) expel(ctx context.Context, pod *corev1.Pod, grace int64) error {
	uid := pod.UID
	err := r.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}},
		client.Preconditions{UID: &uid}, client.GracePeriodSeconds(grace))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s, whose node goes: %w", pod.Name, err)
	}
	return nil
}

// ensure creates a child, or applies it when it is not as it should be. A child is created rather than applied the
// first time, because applying would merge it into an object of the same name that is somebody else's.
func (r *Reconciler) ensure(ctx context.Context, o observed, object client.Object) error {
	if group, ok := object.(*unstructured.Unstructured); ok {
		return r.ensureGroup(ctx, o.job, group)
	}
	live := o.live(object)
	if live == nil {
		err := r.Create(ctx, object, fieldOwner)
		if apierrors.IsAlreadyExists(err) {
			return r.adopt(ctx, o.job, object)
		}
		if err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
		return nil
	}
	if live.GetDeletionTimestamp() != nil || !drifted(object, live) {
		return nil
	}
	err := r.applyChild(ctx, object)
	if _, service := object.(*corev1.Service); service && apierrors.IsInvalid(err) {
		// What somebody made of it cannot be merged with what it should be, as two ports of one name: it is made anew.
		return r.remove(ctx, live)
	}
	return err
}

func (r *Reconciler) applyChild(ctx context.Context, object client.Object) error {
	configuration, err := applyConfiguration(object)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, configuration, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// adopt deals with an object that stood in the way of a creation. One of the job's own, which lost the label by which
// the cache finds it, is applied; a claim that was kept from an earlier job of this name is used; any other is a
// stranger's.
func (r *Reconciler) adopt(ctx context.Context, job *mlv1.TrainingJob, object client.Object) error {
	existing := object.DeepCopyObject().(client.Object)
	if err := r.Direct.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return client.IgnoreNotFound(err)
	}
	if metav1.IsControlledBy(existing, job) {
		return r.applyChild(ctx, object)
	}
	if owner := metav1.GetControllerOf(existing); owner != nil && owner.Kind == kindTrainingJob && owner.Name == job.Name {
		return errLeftover
	}
	claim, ok := existing.(*corev1.PersistentVolumeClaim)
	if ok && metav1.GetControllerOf(claim) == nil && claim.Labels[mlv1.LabelTrainingJob] == job.Name {
		return nil
	}
	return &strangerError{kind: kindOf(object), name: object.GetName()}
}

// live is the observed object that a child corresponds to; nil when there is none.
func (o observed) live(object client.Object) client.Object {
	candidates := []client.Object{}
	switch object.(type) {
	case *batchv1.Job:
		if o.workers != nil {
			candidates = append(candidates, o.workers)
		}
	case *corev1.Service:
		for _, service := range []*corev1.Service{o.headless, o.master, o.tensorBoard} {
			if service != nil {
				candidates = append(candidates, service)
			}
		}
	case *corev1.ConfigMap:
		if o.config != nil {
			candidates = append(candidates, o.config)
		}
	case *corev1.ServiceAccount:
		if o.serviceAccount != nil {
			candidates = append(candidates, o.serviceAccount)
		}
	case *corev1.PersistentVolumeClaim:
		if o.claim != nil {
			candidates = append(candidates, o.claim)
		}
	case *networkingv1.NetworkPolicy:
		if o.policy != nil {
			candidates = append(candidates, o.policy)
		}
	}
	for _, candidate := range candidates {
		if candidate.GetName() == object.GetName() {
			return candidate
		}
	}
	return nil
}

// drifted says whether a live child lacks something of what it should be. What others added to it is theirs.
func drifted(object, live client.Object) bool {
	if !equality.Semantic.DeepDerivative(object.GetLabels(), live.GetLabels()) ||
		!equality.Semantic.DeepDerivative(object.GetOwnerReferences(), live.GetOwnerReferences()) {
		return true
	}
	switch want := object.(type) {
	case *batchv1.Job:
		// The rest of a Job cannot be changed, and must not be: a new version of the operator may build it otherwise.
		is := live.(*batchv1.Job).Spec
		return !equality.Semantic.DeepEqual(want.Spec.Parallelism, is.Parallelism) ||
			!equality.Semantic.DeepEqual(want.Spec.Completions, is.Completions)
	case *corev1.Service:
		is := live.(*corev1.Service).Spec
		// A selector is one value: with a label more it selects other pods.
		return !equality.Semantic.DeepDerivative(want.Spec, is) || !maps.Equal(want.Spec.Selector, is.Selector)
	case *corev1.ConfigMap:
		return !equality.Semantic.DeepDerivative(want.Data, live.(*corev1.ConfigMap).Data)
	case *networkingv1.NetworkPolicy:
		// One rule more would let others in. Who needs it writes a policy of their own: policies add up.
		return !equality.Semantic.DeepEqual(want.Spec, live.(*networkingv1.NetworkPolicy).Spec)
	}
	return false
}

// applyConfiguration is the part of a child that is kept as it should be.
func applyConfiguration(object client.Object) (runtime.ApplyConfiguration, error) {
	owners, err := convert[[]*metav1ac.OwnerReferenceApplyConfiguration](object.GetOwnerReferences())
	if err != nil {
		return nil, err
	}
	name, namespace, labels := object.GetName(), object.GetNamespace(), object.GetLabels()
	switch want := object.(type) {
	case *batchv1.Job:
		return batchv1ac.Job(name, namespace).WithLabels(labels).WithOwnerReferences(owners...).
			WithSpec(batchv1ac.JobSpec().WithParallelism(*want.Spec.Parallelism).WithCompletions(*want.Spec.Completions)), nil
	case *corev1.Service:
		spec, err := convert[*corev1ac.ServiceSpecApplyConfiguration](want.Spec)
		return corev1ac.Service(name, namespace).WithLabels(labels).WithOwnerReferences(owners...).WithSpec(spec), err
	case *corev1.ConfigMap:
		return corev1ac.ConfigMap(name, namespace).WithLabels(labels).WithOwnerReferences(owners...).WithData(want.Data), nil
	case *corev1.ServiceAccount:
		return corev1ac.ServiceAccount(name, namespace).WithLabels(labels).WithOwnerReferences(owners...).
			WithAutomountServiceAccountToken(*want.AutomountServiceAccountToken), nil
	case *corev1.PersistentVolumeClaim:
		return corev1ac.PersistentVolumeClaim(name, namespace).WithLabels(labels).WithOwnerReferences(owners...), nil
	case *networkingv1.NetworkPolicy:
		spec, err := convert[*networkingv1ac.NetworkPolicySpecApplyConfiguration](want.Spec)
		return networkingv1ac.NetworkPolicy(name, namespace).WithLabels(labels).WithOwnerReferences(owners...).WithSpec(spec), err
	}
	return nil, fmt.Errorf("no apply configuration is known for %T", object)
}

// convert turns an API object into its apply configuration, whose JSON form is the same.
func convert[T any](from any) (T, error) {
	var to T
	text, err := json.Marshal(from)
	if err != nil {
		return to, fmt.Errorf("encode %T: %w", from, err)
	}
	if err := json.Unmarshal(text, &to); err != nil {
		return to, fmt.Errorf("decode %T as %T: %w", from, to, err)
	}
	return to, nil
}

// label adds the label replica-id to a pod. Where the admission policy of config/admission is installed the label is
// there from the start and nothing is sent.
func (r *Reconciler) label(ctx context.Context, pod *corev1.Pod, with map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "labels": map[string]string{mlv1.LabelReplicaID: with[mlv1.LabelReplicaID]},
	}})
	if err != nil {
		return fmt.Errorf("encode the label of pod %s: %w", pod.Name, err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	err = r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	return nil
}

func kindOf(object client.Object) string {
	switch object.(type) {
	case *batchv1.Job:
		return "Job"
	case *corev1.Service:
		return "Service"
	case *corev1.ConfigMap:
		return "ConfigMap"
	case *corev1.ServiceAccount:
		return "ServiceAccount"
	case *networkingv1.NetworkPolicy:
		return "NetworkPolicy"
	case *unstructured.Unstructured:
		return "PodGroup"
	default:
		return "PersistentVolumeClaim"
	}
}

// userError returns the reason and message when an error is the user's to mend; empty reason otherwise. permanent says
// that trying again is of no use, because the spec cannot be changed.
func userError(err error) (reason, message string, permanent bool) {
	var stranger *strangerError
	switch {
	case errors.As(err, &stranger):
		return mlv1.ReasonObjectConflict, stranger.Error(), false
	case apierrors.IsInvalid(err):
		return mlv1.ReasonInvalidSpec, err.Error(), true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return mlv1.ReasonQuotaExceeded, err.Error() + "; free or raise the quota", false
	case apierrors.IsForbidden(err):
		return mlv1.ReasonForbidden, err.Error(), false
	}
	return "", "", false
}
