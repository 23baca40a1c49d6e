package nodejoin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
)

// install creates the objects in a file of config/node-join.
func install(t *testing.T, name string) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "config", "node-join", name))
	require.NoError(t, err)
	defer file.Close()
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			require.ErrorContains(t, err, "EOF")
			return
		}
		create(t, object)
	}
}

// The Role and the policy of config/node-join let the manager do what Tokens does, and nothing else in kube-system.
func TestTheManagerMayMakeAndRevokeItsTokensAndNoOtherSecrets(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	install(t, "role.yaml")
	install(t, "policy.yaml")
	impersonated := server.Config(t)
	impersonated.Impersonate.UserName = "system:serviceaccount:spot-training-operator-system:spot-training-operator-controller-manager"
	manager, err := client.New(impersonated, client.Options{Mapper: api.RESTMapper()})
	require.NoError(t, err)
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-zzzzzz", Labels: map[string]string{"app.kubernetes.io/managed-by": "spot-training-operator"},
			},
			Type: corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{
				"token-id": "zzzzzz", "token-secret": "0123456789abcdef", "auth-extra-groups": "system:bootstrappers:spot-training-operator",
			},
		}
		change(s)
		return s
	}
	account := secret(func(s *corev1.Secret) {
		s.Name, s.Type, s.StringData = "stolen", corev1.SecretTypeServiceAccountToken, nil
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	})
	// The policy and the Role take a moment to be heard of.
	require.Eventually(t, func() bool {
		err := manager.Create(ctx, account.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "no Secrets but bootstrap tokens of its own")
	}, time.Minute, 100*time.Millisecond)

	tokens := nodejoin.Tokens{Client: manager, Reader: api}
	_, err = tokens.Make(ctx, instance("t4-policy"), time.Hour)
	require.NoError(t, err)
	require.NoError(t, tokens.Revoke(ctx, instance("t4-policy")))

	for _, group := range []string{"system:bootstrappers:admins", "system:bootstrappers:kubeadm:default-node-token"} {
		others := secret(func(s *corev1.Secret) { s.StringData["auth-extra-groups"] = group })
		require.ErrorContains(t, manager.Create(ctx, others), "only for the group", group)
	}
	foreign := secret(func(s *corev1.Secret) { s.Labels = nil })
	require.ErrorContains(t, manager.Create(ctx, foreign.DeepCopy()), "bootstrap tokens of its own")
	create(t, foreign)
	require.ErrorContains(t, manager.Delete(ctx, foreign), "bootstrap tokens of its own")

	// OLM makes ClusterRoles of the Roles in the manager's own namespace.
	everywhere := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "makes-secrets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete"}}},
	}
	create(t, everywhere)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: everywhere.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: everywhere.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: impersonated.Impersonate.UserName}},
	})
	in := func(namespace string) *corev1.Secret {
		return secret(func(s *corev1.Secret) { s.Namespace = namespace })
	}
	require.Eventually(t, func() bool {
		err := manager.Create(ctx, in(metav1.NamespaceDefault), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "no Secrets but bootstrap tokens of its own")
	}, time.Minute, 100*time.Millisecond)
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "spot-training-operator-system"}}
	require.NoError(t, client.IgnoreAlreadyExists(api.Create(ctx, own)))
	require.NoError(t, manager.Create(ctx, in(own.Name), client.DryRunAll))
}

// The manager keeps Secrets with credentials by a finalizer. RBAC cannot limit it to that; the policy does.
func TestTheManagerMayChangeNothingOfSecretsButItsFinalizers(t *testing.T) {
	api := connect(t)
	ctx := t.Context()
	install(t, "policy.yaml")
	const account = "system:serviceaccount:spot-training-operator-system:spot-training-operator-controller-manager"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "patches-secrets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"patch"}}},
	}
	create(t, role)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	})
	impersonated := server.Config(t)
	impersonated.Impersonate.UserName = account
	manager, err := client.New(impersonated, client.Options{Mapper: api.RESTMapper()})
	require.NoError(t, err)
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "credentials", Finalizers: []string{"example.com/other"}}}
	credentials.StringData = map[string]string{"credentials.json": "{}"}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner-of-credentials"}}
	create(t, owner)
	credentials.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	create(t, credentials)
	patch := func(how types.PatchType, text string, options ...client.PatchOption) error {
		return manager.Patch(ctx, credentials.DeepCopy(), client.RawPatch(how, []byte(text)), options...)
	}
	// The policy and the role take a moment to be heard of. Were the Secret changed before, the same patch would change nothing after.
	require.Eventually(t, func() bool {
		err := patch(types.MergePatchType, `{"stringData":{"credentials.json":"another"}}`, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "nothing in Secrets but its own finalizers")
	}, time.Minute, 100*time.Millisecond)

	require.NoError(t, patch(types.StrategicMergePatchType, `{"metadata":{"finalizers":["training.dcnlab.com/instances-of-t4"]}}`))
	require.NoError(t, patch(types.StrategicMergePatchType, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["training.dcnlab.com/instances-of-t4"]}}`))
	for _, refused := range []string{
		`{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":["example.com/other","example.com/more"]}}`, `{"metadata":{"labels":{"a":"b"}}}`,
		`{"metadata":{"annotations":{"a":"b"}}}`, `{"data":null}`, `{"immutable":true}`, `{"metadata":{"ownerReferences":null}}`,
		// The garbage collector deletes what all owners of are gone.
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"gone"}]}}`,
	} {
		assert.ErrorContains(t, patch(types.MergePatchType, refused, client.DryRunAll), "nothing in Secrets but its own finalizers", refused)
	}
	require.NoError(t, api.Patch(ctx, credentials, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}
