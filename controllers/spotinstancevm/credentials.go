package spotinstancevm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// credentialsKey is the key of a Secret with a service account key.
const credentialsKey = "credentials.json"

// secretOf is the name of the Secret with the credentials of a SpotInstanceVM: its own, else that of the jobs that refer
// to it, the oldest first; empty for the operator's own identity. Once instances were made with a job's credentials these
// are used on when the job is gone, so that the instances can be deleted.
func secretOf(vm *spotv1alpha1.SpotInstanceVM, jobs []spotv1alpha1.SpotInstanceJob) (string, problem) {
	if ref := vm.Spec.GCP.CredentialsSecretRef; ref != nil {
		return secretIn(vm.Namespace, ref, "spec.gcp.credentialsSecretRef")
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b spotv1alpha1.SpotInstanceJob) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	used := vm.Annotations[spotv1alpha1.AnnotationCredentialsSecret]
	first, wrong := "", problem{}
	for i := range jobs {
		ref := jobs[i].Spec.GCPCredentialsSecretRef
		if ref == nil {
			continue
		}
		name, t := secretIn(vm.Namespace, ref, "spec.gcpCredentialsSecretRef of SpotInstanceJob "+jobs[i].Name)
		switch {
		case t.exists():
			wrong = t
		case name == used:
			return used, problem{}
		case first == "":
			first = name
		}
	}
	if first != "" {
		return first, problem{}
	}
	return used, wrong
}

// secretIn holds that a Secret lies in the namespace of who refers to it.
func secretIn(namespace string, ref *spotv1alpha1.SecretReference, field string) (string, problem) {
	if ref.IsElsewhere(namespace) {
		return "", problem{reason: reasons.SecretNotFound, credentials: true, message: fmt.Sprintf(
			"%s.namespace: is %s: only Secrets of the object's own namespace are read: copy the Secret to namespace %s and remove the field",
			field, ref.Namespace, namespace)}
	}
	return ref.Name, problem{}
}

// secretAge is how long the contents of a Secret are used before it is read again.
const secretAge = 30 * time.Second

type readSecret struct {
	content    []byte
	finalizers []string
	// problem keeps new instances from being created. With content those that exist can be looked after.
	problem problem
}

func (r *Reconciler) credentials(ctx context.Context, secret types.NamespacedName) (readSecret, error) {
	if known, ok := r.secrets.Get(secret); ok {
		return known.(readSecret), nil
	}
	var known readSecret
	is, err := reconciling.Get[corev1.Secret](ctx, r.Direct, secret.Namespace, secret.Name)
	switch {
	case err != nil:
		return known, err
	case is == nil:
		known.problem = problem{reason: reasons.SecretNotFound, credentials: true, message: fmt.Sprintf(
			"Secret %s with the credentials does not exist in namespace %s: create it with the key %s, or correct the reference to it",
			secret.Name, secret.Namespace, credentialsKey)}
	case len(is.Data[credentialsKey]) == 0:
		known.finalizers = is.Finalizers
		known.problem = problem{reason: reasons.SecretNotFound, credentials: true, message: fmt.Sprintf(
			"Secret %s has no key %s: put the JSON key of a service account there", secret.Name, credentialsKey)}
	default:
		known.content, known.finalizers = is.Data[credentialsKey], is.Finalizers
		if is.DeletionTimestamp != nil {
			known.problem = problem{reason: reasons.SecretNotFound, credentials: true, ending: true, message: fmt.Sprintf(
				"Secret %s with the credentials is being deleted: it stays until the instances are gone, and no more are created: create it again when it is gone, "+
					"or name another one", secret.Name)}
		}
	}
	for _, finalizer := range known.finalizers {
		if name, ours := strings.CutPrefix(finalizer, spotv1alpha1.FinalizerCredentials); ours {
			if err := r.releaseFromGone(ctx, secret, name); err != nil {
				return known, err
			}
		}
	}
	r.secrets.Set(secret, known, secretAge)
	return known, nil
}

// releaseFromGone lets a Secret go that has the finalizer of a SpotInstanceVM which no longer exists: the user that removed the
// finalizer of that may have done so while no manager ran.
func (r *Reconciler) releaseFromGone(ctx context.Context, secret types.NamespacedName, vm string) error {
	for _, reader := range []client.Reader{r, r.Direct} { // the cache may be late
		if is, err := reconciling.Get[spotv1alpha1.SpotInstanceVM](ctx, reader, secret.Namespace, vm); is != nil || err != nil {
			return err
		}
	}
	return r.releaseSecret(ctx, types.NamespacedName{Namespace: secret.Namespace, Name: vm}, secret.Name)
}

// finalizerOf is the finalizer that keeps the Secret of a SpotInstanceVM.
func finalizerOf(vm string) string { return spotv1alpha1.FinalizerCredentials + vm }

// secretToKeep is the Secret without which the instances could not be deleted; empty when there are none, or they need none.
func (p *planner) secretToKeep() string {
	switch {
	case !p.d.finalizer:
		return ""
	case !p.access.exists():
		return p.secret
	default: // another one cannot be used yet
		return p.vm.Annotations[spotv1alpha1.AnnotationCredentialsSecret]
	}
}

// keepSecret has a Secret stay until it is released.
func (r *Reconciler) keepSecret(ctx context.Context, vm types.NamespacedName, name string) error {
	return r.patchFinalizers(ctx, vm, name, "finalizers")
}

// releaseSecret lets a Secret go. It is no error when it has gone.
func (r *Reconciler) releaseSecret(ctx context.Context, vm types.NamespacedName, name string) error {
	return client.IgnoreNotFound(r.patchFinalizers(ctx, vm, name, "$deleteFromPrimitiveList/finalizers"))
}

// releaseSecrets lets several go, each whether or not another can.
func (r *Reconciler) releaseSecrets(ctx context.Context, vm types.NamespacedName, names []string) error {
	var failed []error
	for _, name := range names {
		failed = append(failed, r.releaseSecret(ctx, vm, name))
	}
	return errors.Join(failed...)
}

// patchFinalizers adds or removes one by a strategic merge, which leaves those of other SpotInstanceVMs alone.
func (r *Reconciler) patchFinalizers(ctx context.Context, vm types.NamespacedName, name, directive string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{directive: []string{finalizerOf(vm.Name)}}})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: name}}
	r.secrets.Delete(client.ObjectKeyFromObject(secret))
	if err := r.Secrets.Patch(ctx, secret, client.RawPatch(types.StrategicMergePatchType, patch), child.FieldOwner); err != nil {
		return fmt.Errorf("write the finalizer of Secret %s: %w", name, err)
	}
	return nil
}
