package rbac_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// permissions are those of one ServiceAccount in a ClusterServiceVersion.
type permissions struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// clusterServiceVersion is the part of it that says what runs with which rules.
type clusterServiceVersion struct {
	Spec struct {
		Install struct {
			Spec struct {
				ClusterPermissions []permissions `json:"clusterPermissions"`
				Permissions        []permissions `json:"permissions"`
				Deployments        []struct {
					Name string                `json:"name"`
					Spec appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
			} `json:"spec"`
		} `json:"install"`
		WebhookDefinitions []webhookDefinition `json:"webhookdefinitions"`
	} `json:"spec"`
}

// fromBundle makes of a bundle what OLM makes of it in AllNamespaces mode: the other manifests, and roles of the rules.
func fromBundle(t *testing.T, file string) *installation {
	t.Helper()
	var csv clusterServiceVersion
	i := &installation{namespace: defaultNamespace}
	manifests, err := filepath.Glob(filepath.Dir(file) + "/*.yaml")
	require.NoError(t, err)
	for _, manifest := range manifests {
		text, err := os.ReadFile(manifest)
		require.NoError(t, err)
		for _, object := range decode(t, string(text)) {
			if manifest == file {
				convert(t, object.Object, &csv)
				continue
			}
			i.objects = append(i.objects, object)
		}
	}
	install := csv.Spec.Install.Spec
	for _, deployment := range install.Deployments {
		if deployment.Name != jobServiceName {
			i.deployment = deployment.Spec
		}
	}
	require.NotEmpty(t, i.serviceAccount(), "%s: deployments", file)
	accounts := map[string]bool{i.serviceAccount(): true}
	for _, p := range slices.Concat(install.ClusterPermissions, install.Permissions) {
		accounts[p.ServiceAccountName] = true
	}
	for name := range accounts {
		i.objects = append(i.objects, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, p := range install.ClusterPermissions {
		meta := metav1.ObjectMeta{Name: "cluster-permissions-" + p.ServiceAccountName}
		i.objects = append(i.objects,
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: p.Rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: i.subjects(p), RoleRef: roleRef("ClusterRole", meta.Name)})
	}
	for _, p := range install.Permissions {
		meta := metav1.ObjectMeta{Name: "permissions-" + p.ServiceAccountName}
		i.objects = append(i.objects,
			&rbacv1.Role{ObjectMeta: meta, Rules: p.Rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: i.subjects(p), RoleRef: roleRef("Role", meta.Name)})
	}
	for _, definition := range csv.Spec.WebhookDefinitions {
		i.objects = append(i.objects, definition.configuration())
	}
	for _, object := range i.objects {
		switch object.(type) {
		case *corev1.ServiceAccount, *rbacv1.Role, *rbacv1.RoleBinding:
			object.SetNamespace(i.namespace)
		}
		if object.GetObjectKind().GroupVersionKind().Kind == "Service" {
			object.SetNamespace(i.namespace)
		}
	}
	i.addOperatorCondition()
	return i
}

// addOperatorCondition adds the OperatorCondition by which the manager tells OLM whether it may be upgraded, with the role
// that OLM makes for it.
func (i *installation) addOperatorCondition() {
	const name = "spot-training-operator.v0"
	meta := metav1.ObjectMeta{Name: name, Namespace: i.namespace}
	condition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition"}}
	condition.SetName(name)
	condition.SetNamespace(i.namespace)
	i.byOLM = []client.Object{
		condition,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"operators.coreos.com"}, Resources: []string{"operatorconditions"}, ResourceNames: []string{name},
			Verbs: []string{"get", "update", "patch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: roleRef("Role", name), Subjects: i.subjects(permissions{ServiceAccountName: i.serviceAccount()}),
		},
	}
	i.environment = []string{"OPERATOR_CONDITION_NAME=" + name}
}

// isByOLM says whether OLM made an object for its own purposes.
func (i *installation) isByOLM(object client.Object) bool {
	for _, one := range i.byOLM {
		if reflect.TypeOf(one) == reflect.TypeOf(object) && client.ObjectKeyFromObject(one) == client.ObjectKeyFromObject(object) {
			return true
		}
	}
	return false
}

func (i *installation) subjects(p permissions) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: p.ServiceAccountName, Namespace: i.namespace}}
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}
