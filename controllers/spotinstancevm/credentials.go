package spotinstancevm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
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
	if ref.Namespace != "" && ref.Namespace != namespace {
		return "", problem{reason: reasons.SecretNotFound, credentials: true, message: fmt.Sprintf(
			"%s.namespace: is %s: only Secrets of the object's own namespace are read: copy the Secret to namespace %s and remove the field",
			field, ref.Namespace, namespace)}
	}
	return ref.Name, problem{}
}

// secretAge is how long the contents of a Secret are used before it is read again.
const secretAge = 30 * time.Second

type readSecret struct {
	content []byte
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
		known.problem = problem{reason: reasons.SecretNotFound, credentials: true, message: fmt.Sprintf(
			"Secret %s has no key %s: put the JSON key of a service account there", secret.Name, credentialsKey)}
	default:
		known.content = is.Data[credentialsKey]
	}
	r.secrets.Set(secret, known, secretAge)
	return known, nil
}
