package rbac_test

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// storageMigration has the manager rewrite all TrainingJobs. It is kept from writing one until it has failed twice:
// the second time the same event comes again, which is written as a series.
func storageMigration(w *world) {
	job := w.submit(builders.TrainingJob("bert").Suspended())
	allow := w.forbidUpdates(job)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "trainingjobs.ml.example.com"}, crd))
	storage := crd.Status.StoredVersions
	require.Len(w.t, storage, 1)
	// As if a release before had stored them in another version.
	older := *crd.Spec.Versions[0].DeepCopy()
	older.Name, older.Served, older.Storage = "v1beta1", false, false
	w.await("the other version", func(ctx context.Context) (bool, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return false, err
		}
		before := crd.DeepCopy()
		crd.Spec.Versions = append(crd.Spec.Versions[:1:1], older)
		err := w.Patch(ctx, crd, client.MergeFrom(before))
		if apierrors.IsTimeout(err) { // the API server compiles all rules once more
			return false, nil
		}
		return err == nil, err
	})
	before := crd.DeepCopy()
	crd.Status.StoredVersions = append(crd.Status.StoredVersions, older.Name)
	require.NoError(w.t, w.Status().Patch(w.t.Context(), crd, client.MergeFrom(before)))

	w.await("two failures", func(ctx context.Context) (bool, error) {
		var events eventsv1.EventList
		err := w.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault))
		return slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "StorageMigrationFailed" && event.Series != nil
		}), err
	})
	allow()
	w.await("the end of the migration", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return slices.Equal(crd.Status.StoredVersions, storage), err
	})
}

// forbidUpdates has the API server refuse every change of the TrainingJobs in the namespace, until allow is called.
func (w *world) forbidUpdates(probe client.Object) (allow func()) {
	w.t.Helper()
	name := metav1.ObjectMeta{Name: w.namespace + "-no-updates"}
	inNamespace := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
	require.NoError(w.t, w.Create(w.t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: inNamespace,
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{"ml.example.com"}, APIVersions: []string{"*"}, Resources: []string{"trainingjobs"},
						},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "not now"}},
		},
	}))
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: name,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	require.NoError(w.t, w.Create(w.t.Context(), binding))
	w.await("updates being refused", func(ctx context.Context) (bool, error) {
		now := probe.DeepCopyObject().(client.Object)
		if err := w.Get(ctx, client.ObjectKeyFromObject(probe), now); err != nil {
			return false, err
		}
		now.SetLabels(map[string]string{"changed": "true"})
		err := w.Update(ctx, now, client.DryRunAll)
		return apierrors.IsInvalid(err), nil
	})
	return func() {
		w.t.Helper()
		require.NoError(w.t, w.Delete(w.t.Context(), binding))
	}
}
