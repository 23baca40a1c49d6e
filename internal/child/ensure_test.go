package child_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

// wanted are children of each kind that Ensure keeps.
func (c *cluster) wanted() map[string]client.Object {
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(c.owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	meta := metav1.ObjectMeta{Name: "wanted", Namespace: c.namespace, Labels: map[string]string{"app": "a"}, OwnerReferences: owners}
	shared := metav1.ObjectMeta{Name: c.namespace, Labels: meta.Labels, OwnerReferences: owners}
	group := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ReplicationController", "spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"app": "a"},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "i"}}},
			},
		},
	}}
	group.SetName("wanted")
	group.SetNamespace(c.namespace)
	group.SetLabels(meta.Labels)
	group.SetOwnerReferences(owners)
	return map[string]client.Object{
		"ConfigMap": &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "1"}},
		"Service": &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "a"},
			Ports: []corev1.ServicePort{{Name: "p", Port: 80, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolTCP}},
		}},
		"ServiceAccount": &corev1.ServiceAccount{ObjectMeta: meta, AutomountServiceAccountToken: ptr.To(false)},
		"NetworkPolicy": &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, PolicyTypes: []networkingv1.PolicyType{"Ingress"},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
		}},
		"Job": &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion), Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "i"}},
			}},
		}},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		}},
		"ClusterRole": &rbacv1.ClusterRole{ObjectMeta: shared, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		}},
		"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{
			ObjectMeta: shared, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.namespace},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.namespace, Name: "wanted"}},
		},
		"an unstructured object": group,
	}
}

// live reads the object that the API server has; nil when there is none.
func (c *cluster) live(t *testing.T, want client.Object) client.Object {
	t.Helper()
	live := want.DeepCopyObject().(client.Object)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(want), live); client.IgnoreNotFound(err) != nil {
		require.NoError(t, err)
	} else if err != nil {
		return nil
	}
	return live
}

func (c *cluster) ensure(t *testing.T, want client.Object) error {
	t.Helper()
	return c.Ensure(t.Context(), c.owner, want.DeepCopyObject().(client.Object), c.live(t, want))
}

func TestEnsureKeepsWhatIsWantedAndWhatOthersAdded(t *testing.T) {
	changes := map[string]func(live client.Object){
		"ConfigMap":      func(o client.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"a": "2", "theirs": "x"} },
		"Service":        func(o client.Object) { o.(*corev1.Service).Spec.Selector["never"] = "true" },
		"ServiceAccount": func(o client.Object) { o.(*corev1.ServiceAccount).AutomountServiceAccountToken = ptr.To(true) },
		"NetworkPolicy": func(o client.Object) {
			spec := &o.(*networkingv1.NetworkPolicy).Spec
			spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
		},
		"Job":                    func(o client.Object) { o.(*batchv1.Job).Spec.Parallelism = ptr.To[int32](0) },
		"PersistentVolumeClaim":  func(o client.Object) { delete(o.GetLabels(), "app") },
		"ClusterRole":            func(o client.Object) { o.(*rbacv1.ClusterRole).Rules[0].Verbs = []string{"get", "delete"} },
		"ClusterRoleBinding":     func(o client.Object) { o.(*rbacv1.ClusterRoleBinding).Subjects[0].Name = "else" },
		"an unstructured object": func(o client.Object) { setField(o, int64(3), "spec", "replicas") },
	}
	for kind, change := range changes {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t)
			want := c.wanted()[kind]
			require.NoError(t, c.ensure(t, want), "it is created")
			created := c.live(t, want)
			require.NotNil(t, created)
			require.NoError(t, c.ensure(t, want))
			assert.Equal(t, created.GetResourceVersion(), c.live(t, want).GetResourceVersion(), "nothing is written when nothing differs")

			changed := created.DeepCopyObject().(client.Object)
			changed.SetLabels(map[string]string{"app": "a", "theirs": "x"})
			change(changed)
			require.NoError(t, c.Patch(t.Context(), changed, client.MergeFrom(created), client.FieldOwner("another")))
			require.NoError(t, c.ensure(t, want))

			is := c.live(t, want)
			assert.Equal(t, created.GetUID(), is.GetUID(), "it is changed and not replaced")
			assert.Equal(t, map[string]string{"app": "a", "theirs": "x"}, is.GetLabels(), "a label of another writer stays")
			assert.Equal(t, created.GetOwnerReferences(), is.GetOwnerReferences())
			if settings, ok := is.(*corev1.ConfigMap); ok {
				assert.Equal(t, map[string]string{"a": "1", "theirs": "x"}, settings.Data)
				return
			}
			is.SetLabels(created.GetLabels())
			for _, o := range []client.Object{is, created} {
				o.SetResourceVersion("")
				o.SetManagedFields(nil)
				o.SetGeneration(0)
			}
			assert.Equal(t, created, is)
		})
	}
}

func setField(o client.Object, value any, path ...string) {
	if err := unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, value, path...); err != nil {
		panic(err)
	}
}

func TestEnsureLeavesObjectsOfOthersAlone(t *testing.T) {
	for name, test := range map[string]struct {
		existing func(want client.Object)
		isHidden bool
		want     func(*testing.T, error)
	}{
		"of no owner":                       {func(o client.Object) { o.SetOwnerReferences(nil) }, false, isRefused},
		"of no owner, and not in the cache": {func(o client.Object) { o.SetOwnerReferences(nil) }, true, isRefused},
		"of an earlier owner of the name": {func(o client.Object) { o.GetOwnerReferences()[0].UID = "earlier" }, false,
			func(t *testing.T, err error) { assert.ErrorIs(t, err, child.ErrLeftover) }},
		"that is being deleted": {func(o client.Object) { o.SetFinalizers([]string{"example.com/stay"}) }, false,
			func(t *testing.T, err error) { assert.NoError(t, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			want := c.wanted()["ConfigMap"]
			existing := want.DeepCopyObject().(*corev1.ConfigMap)
			existing.Data = map[string]string{"theirs": "x"}
			existing.OwnerReferences = append([]metav1.OwnerReference(nil), existing.OwnerReferences...)
			test.existing(existing)
			require.NoError(t, c.WithWatch.Create(t.Context(), existing))
			if len(existing.Finalizers) > 0 {
				require.NoError(t, c.WithWatch.Delete(t.Context(), existing))
			}
			live := c.live(t, want)
			if test.isHidden {
				live = nil
			}
			test.want(t, c.Ensure(t.Context(), c.owner, want, live))
			assert.Equal(t, existing.Data, c.live(t, existing).(*corev1.ConfigMap).Data)
		})
	}
}

func isRefused(t *testing.T, err error) {
	t.Helper()
	var refusal *child.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Contains(t, refusal.Message, "does not belong to this ConfigMap")
}

func TestEnsureFindsAChildThatTheCacheDoesNotShow(t *testing.T) {
	c := newCluster(t)
	want := c.wanted()["ConfigMap"]
	require.NoError(t, c.ensure(t, want))
	require.NoError(t, c.Patch(t.Context(), want.DeepCopyObject().(client.Object),
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`))))
	require.NoError(t, c.Ensure(t.Context(), c.owner, want.DeepCopyObject().(client.Object), nil))
	assert.Equal(t, map[string]string{"app": "a"}, c.live(t, want).GetLabels())
}

func TestEnsureUsesAClaimThatOutlivedItsOwner(t *testing.T) {
	c := newCluster(t)
	want := c.wanted()["PersistentVolumeClaim"]
	kept := want.DeepCopyObject().(client.Object)
	kept.SetOwnerReferences(nil)
	require.NoError(t, c.WithWatch.Create(t.Context(), kept))
	require.NoError(t, c.Ensure(t.Context(), c.owner, want.DeepCopyObject().(client.Object), nil))
	assert.True(t, metav1.IsControlledBy(c.live(t, want), c.owner))

	other := newCluster(t)
	kept = other.wanted()["PersistentVolumeClaim"]
	kept.SetOwnerReferences(nil)
	kept.SetLabels(nil)
	require.NoError(t, other.WithWatch.Create(t.Context(), kept))
	isRefused(t, other.Ensure(t.Context(), other.owner, other.wanted()["PersistentVolumeClaim"], nil))
}

func TestEnsureReplacesAServiceThatCannotBeChanged(t *testing.T) {
	c := newCluster(t)
	want := c.wanted()["Service"].(*corev1.Service)
	require.NoError(t, c.ensure(t, want))
	created := c.live(t, want).(*corev1.Service)
	changed := created.DeepCopy()
	changed.Spec.Ports[0].Port = 81 // of the same name: ports are merged by number
	require.NoError(t, c.Update(t.Context(), changed, client.FieldOwner("another")))
	assert.ErrorIs(t, c.ensure(t, want), child.ErrLeftover)
	require.NoError(t, c.ensure(t, want))
	is := c.live(t, want).(*corev1.Service)
	assert.NotEqual(t, created.UID, is.UID)
	assert.Equal(t, created.Spec.Ports, is.Spec.Ports)
}

func TestApplyRemovesWhatItAppliedBefore(t *testing.T) {
	c := newCluster(t)
	writer := c.Writer
	writer.FieldOwner = "of-this-test"
	want := c.wanted()["ConfigMap"].(*corev1.ConfigMap)
	require.NoError(t, writer.Apply(t.Context(), want, map[string]any{"data": map[string]string{"a": "1", "b": "2"}}))
	assert.NotEmpty(t, want.UID, "the object has what the API server returned")
	assert.Equal(t, "of-this-test", want.ManagedFields[0].Manager)
	require.NoError(t, writer.Apply(t.Context(), want, map[string]any{"data": map[string]string{"a": "1"}}))
	assert.Equal(t, map[string]string{"a": "1"}, want.Data)

	gone := want.DeepCopy()
	gone.UID = "another"
	require.NoError(t, writer.Apply(t.Context(), gone, map[string]any{"data": map[string]string{"a": "2"}}))
	assert.Equal(t, map[string]string{"a": "1"}, c.live(t, want).(*corev1.ConfigMap).Data, "another object of the name is left alone")
}
