package rbac_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// The attack: who may edit a namespace creates a SpotInstanceVM, whose machines join the cluster and run a script of that user's as root.
func TestWhoMayEditANamespaceHasNoMachineJoin(t *testing.T) {
	server := apiserver.Start(t)
	api, err := client.New(server.Config(t), client.Options{})
	require.NoError(t, err)
	c := &cluster{Client: api, t: t, folder: t.TempDir()}
	c.startAggregation(server.KubeconfigOf(t, "system:kube-controller-manager", "system:masters"))
	const team = "team"
	require.NoError(t, api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}))
	for _, role := range []string{"admin", "edit", "view"} {
		c.bindIn(team, role, role)
	}
	for form, roles := range userRoles(t) {
		t.Run(form, func(t *testing.T) {
			c := c.in(t)
			for name, role := range roles {
				require.NoError(t, api.Create(t.Context(), role))
				if strings.HasSuffix(name, "spotinstancevm-editor-role") {
					c.bindIn(team, name, "trusted")
				}
			}
			defer c.uninstall(team, roles)
			const group = "training.training.dcnlab.com"
			for _, user := range []string{"admin", "edit"} {
				c.await("the rights of "+user+" to be aggregated", func(context.Context) (bool, error) {
					return c.may(user, "create", group, "spotinstancejobs", team), nil
				})
				for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
					assert.False(t, c.may(user, verb, group, "spotinstancevms", team), "%s may %s", user, verb)
				}
				for _, verb := range []string{"update", "patch"} {
					assert.False(t, c.may(user, verb, "", "namespaces", team), "%s may %s the label that allows instances", user, verb)
				}
			}
			c.await("the rights of view to be aggregated", func(context.Context) (bool, error) {
				return c.may("view", "list", group, "spotinstancevms", team), nil
			})
			c.await("the role that an administrator gives to a user", func(context.Context) (bool, error) {
				return c.may("trusted", "create", group, "spotinstancevms", team), nil
			})
		})
	}
}

// userRoles are the ClusterRoles for users of each way to install the operator, by name.
func userRoles(t *testing.T) map[string]map[string]*rbacv1.ClusterRole {
	t.Helper()
	roles := map[string]map[string]*rbacv1.ClusterRole{}
	for form, installation := range map[string]*installations.Installation{
		"config": installations.Kustomize(t, "default"), "chart": installations.Chart(t, installations.Namespace), "bundle": installations.Bundle(t),
	} {
		roles[form] = map[string]*rbacv1.ClusterRole{}
		for _, object := range installation.Objects {
			for _, of := range []string{"-admin-role", "-editor-role", "-viewer-role"} {
				if object.GetObjectKind().GroupVersionKind().Kind == "ClusterRole" && strings.HasSuffix(object.GetName(), of) {
					role := &rbacv1.ClusterRole{}
					require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, role))
					roles[form][role.Name] = role
				}
			}
		}
		require.NotEmpty(t, roles[form], form)
	}
	return roles
}

// startAggregation starts the controller of Kubernetes' own that adds roles to admin, edit and view.
func (c *cluster) startAggregation(kubeconfig []byte) {
	c.t.Helper()
	path := filepath.Join(c.folder, "controllers.kubeconfig")
	require.NoError(c.t, os.WriteFile(path, kubeconfig, 0o600))
	startProcess(c.t, c.folder, "kube-controller-manager", filepath.Join(assets, "kube-controller-manager"), nil,
		"--controllers=clusterrole-aggregation-controller", "--kubeconfig="+path, "--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path,
		"--leader-elect=false", "--secure-port=0")
}

// bindIn gives a user a ClusterRole in a namespace.
func (c *cluster) bindIn(namespace, role, user string) {
	c.t.Helper()
	require.NoError(c.t, c.Create(c.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: namespace}, RoleRef: clusterRole(role),
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// may asks the API server whether a user may do something in a namespace.
func (c *cluster) may(user, verb, group, resource, namespace string) bool {
	c.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Name: namespace, Verb: verb, Group: group, Resource: resource},
	}}
	require.NoError(c.t, c.Create(c.t.Context(), review))
	return review.Status.Allowed
}

// uninstall removes roles, and waits until the roles of the cluster are without them.
func (c *cluster) uninstall(namespace string, roles map[string]*rbacv1.ClusterRole) {
	ctx := c.t.Context()
	for role := range maps.Values(roles) {
		assert.NoError(c.t, c.Delete(ctx, role))
	}
	assert.NoError(c.t, c.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "trusted", Namespace: namespace}}))
	for _, name := range []string{"admin", "edit", "view"} {
		apiserver.Await(c.t, "the role "+name+" being without what was added to it", func() bool {
			var role rbacv1.ClusterRole
			err := c.Get(ctx, client.ObjectKey{Name: name}, &role)
			return err == nil && !strings.Contains(role.String(), "spotinstancejobs")
		})
	}
}
