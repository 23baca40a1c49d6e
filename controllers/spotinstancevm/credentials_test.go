package spotinstancevm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestSecretOf(t *testing.T) {
	ref := func(name, namespace string) *spotv1alpha1.SecretReference {
		return &spotv1alpha1.SecretReference{Name: name, Namespace: namespace}
	}
	job := func(name string, age time.Duration, secret *spotv1alpha1.SecretReference) spotv1alpha1.SpotInstanceJob {
		j := spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}}
		j.Spec.GCPCredentialsSecretRef = secret
		return j
	}
	tests := map[string]struct {
		own  *spotv1alpha1.SecretReference
		used string
		jobs []spotv1alpha1.SpotInstanceJob
		want string
		not  string // part of the message
	}{
		"none is named: the operator's own identity": {},
		"its own":                       {own: ref("own", ""), jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("jobs", ""))}, want: "own"},
		"its own, with its namespace":   {own: ref("own", "team"), want: "own"},
		"not that of another namespace": {own: ref("own", "kube-system"), not: "spec.gcp.credentialsSecretRef.namespace: is kube-system"},
		"that of the oldest job":        {jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("young", "")), job("b", time.Hour, ref("old", ""))}, want: "old"},
		"a job without one is no help":  {jobs: []spotv1alpha1.SpotInstanceJob{job("b", time.Hour, nil), job("a", 0, ref("young", ""))}, want: "young"},
		"the one in use, as long as it is named": {
			used: "young", jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("young", "")), job("b", time.Hour, ref("old", ""))}, want: "young",
		},
		"another when it is named no more":      {used: "before", jobs: []spotv1alpha1.SpotInstanceJob{job("b", time.Hour, ref("old", ""))}, want: "old"},
		"the one in use when the jobs are gone": {used: "before", want: "before"},
		"a job that names another namespace": {
			jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("x", "other"))}, not: "spec.gcpCredentialsSecretRef of SpotInstanceJob a.namespace",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Name: "t4", Namespace: "team"}}
			vm.Spec.GCP.CredentialsSecretRef = test.own
			if test.used != "" {
				vm.Annotations = map[string]string{spotv1alpha1.AnnotationCredentialsSecret: test.used}
			}
			got, problem := secretOf(vm, test.jobs)
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.not != "", problem.exists())
			assert.Contains(t, problem.message, test.not)
		})
	}
}

// A manager that had just started put its finalizer on a Secret again from what a cache showed that was behind. The SpotInstanceVM was gone,
// and so nothing took it away: the namespace of both could not be deleted.
func TestASecretIsKeptOnlyForASpotInstanceVMAsItIsNow(t *testing.T) {
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{
		Name: "t4", Namespace: "team", UID: "vm", Finalizers: []string{spotv1alpha1.FinalizerInstances},
		Annotations: map[string]string{spotv1alpha1.AnnotationCredentialsSecret: "gcp"},
	}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gcp", Namespace: "team"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vm, secret).Build()
	r := &Reconciler{Client: api, Direct: api, Secrets: api, secrets: utilcache.NewExpiring()}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
	keeps := desired{finalizer: true, secret: "gcp"}

	behind := vm.DeepCopy()
	vm.Finalizers, vm.Annotations = nil, nil // by the manager before this one
	require.NoError(t, api.Update(t.Context(), vm))
	_, err := r.writeFinalizers(t.Context(), observed{vm: behind, secret: "gcp"}, &keeps)
	assert.True(t, apierrors.IsConflict(err), err)
	assert.Empty(t, finalizersOf(t, api, secret))

	_, err = r.writeFinalizers(t.Context(), observed{vm: vm, secret: "gcp"}, &keeps)
	require.NoError(t, err)
	assert.Equal(t, []string{finalizerOf("t4")}, finalizersOf(t, api, secret))
	assert.Equal(t, []string{"gcp"}, r.memory.secretsOf(client.ObjectKeyFromObject(vm)), "which is released also when the status was never written")
}

// A manager that was killed in between left an instance in the status that could not be asked for any more, since the Secret was gone.
func TestASecretIsLetGoAfterTheLastInstanceIsOffTheStatus(t *testing.T) {
	vm := &spotv1alpha1.SpotInstanceVM{
		ObjectMeta: metav1.ObjectMeta{Name: "t4", Namespace: "team", UID: "vm", Annotations: map[string]string{spotv1alpha1.AnnotationCredentialsSecret: "gcp"}},
		Status: spotv1alpha1.SpotInstanceVMStatus{ProvisionedInstances: []spotv1alpha1.ProvisionedInstance{
			{Name: "t4-x", Zone: "a", State: spotv1alpha1.InstanceDeleting},
		}},
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gcp", Namespace: "team", Finalizers: []string{finalizerOf("t4")}}}
	dies := true
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vm, secret).WithStatusSubresource(vm).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			if dies {
				return errors.New("killed")
			}
			return c.SubResource(sub).Patch(ctx, o, p, options...)
		},
	}).Build()
	r := &Reconciler{Client: api, Direct: api, Secrets: api, Recorder: events.NewFakeRecorder(10), secrets: utilcache.NewExpiring()}
	for _, release := range []bool{false, true} {
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
		dies = true
		_, err := r.report(t.Context(), observed{vm: vm, secret: "gcp", kept: true}, &desired{release: release})
		require.Error(t, err)
		assert.Equal(t, []string{finalizerOf("t4")}, finalizersOf(t, api, secret), "release: %t", release)
	}
	dies = false
	_, err := r.report(t.Context(), observed{vm: vm, secret: "gcp", kept: true}, &desired{release: true})
	require.NoError(t, err)
	assert.Empty(t, finalizersOf(t, api, secret))
}

func finalizersOf(t *testing.T, api client.Reader, secret *corev1.Secret) []string {
	t.Helper()
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	return secret.Finalizers
}
