package installations

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
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

// Bundle is what OLM makes of the bundle: the manifests, and roles of the rules. Without served namespaces it is in AllNamespaces mode.
func Bundle(t testing.TB, served ...string) *Installation {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(apiserver.Root(), "bundle", "manifests", "*.clusterserviceversion.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	var csv clusterServiceVersion
	i := &Installation{Namespace: Namespace, Served: served, Lifted: map[string]bool{}}
	manifests, err := filepath.Glob(filepath.Dir(files[0]) + "/*.yaml")
	require.NoError(t, err)
	for _, manifest := range manifests {
		text, err := os.ReadFile(manifest)
		require.NoError(t, err)
		for _, object := range Decode(t, string(text)) {
			if manifest == files[0] {
				convert(t, object.Object, &csv)
				continue
			}
			i.Objects = append(i.Objects, object)
		}
	}
	for _, deployment := range csv.Spec.Install.Spec.Deployments {
		if deployment.Name == JobService {
			i.JobService = deployment.Spec
		} else {
			i.Manager = deployment.Spec
		}
	}
	require.NotEmpty(t, i.Account(), "%s: deployments", files[0])
	i.addRoles(&csv)
	for _, definition := range csv.Spec.WebhookDefinitions {
		i.Objects = append(i.Objects, definition.configuration())
	}
	for _, object := range i.Objects {
		if _, account := object.(*corev1.ServiceAccount); account || object.GetObjectKind().GroupVersionKind().Kind == "Service" {
			object.SetNamespace(i.Namespace)
		}
	}
	i.addOperatorCondition()
	return i
}

// addRoles adds the ServiceAccounts, and roles of their rules.
func (i *Installation) addRoles(csv *clusterServiceVersion) {
	install := csv.Spec.Install.Spec
	accounts := map[string]bool{i.Account(): true}
	for _, p := range slices.Concat(install.ClusterPermissions, install.Permissions) {
		accounts[p.ServiceAccountName] = true
	}
	for name := range accounts {
		i.Objects = append(i.Objects, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, p := range install.ClusterPermissions {
		meta := metav1.ObjectMeta{Name: "cluster-permissions-" + p.ServiceAccountName}
		i.Objects = append(i.Objects,
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: p.Rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: i.subjects(p), RoleRef: roleRef("ClusterRole", meta.Name)})
	}
	for _, p := range install.Permissions {
		meta := metav1.ObjectMeta{Name: "permissions-" + p.ServiceAccountName}
		// OLM makes Roles in the operator's own namespace and in those that it serves, and ClusterRoles of the same rules where it serves all.
		if len(i.Served) > 0 {
			for _, meta.Namespace = range slices.Compact(slices.Sorted(slices.Values(append([]string{i.Namespace}, i.Served...)))) {
				i.Objects = append(i.Objects,
					&rbacv1.Role{ObjectMeta: meta, Rules: p.Rules},
					&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: i.subjects(p), RoleRef: roleRef("Role", meta.Name)})
			}
			continue
		}
		i.Lifted[meta.Name] = true
		i.Objects = append(i.Objects,
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: p.Rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: i.subjects(p), RoleRef: roleRef("ClusterRole", meta.Name)})
	}
}

// addOperatorCondition adds the OperatorCondition by which the manager tells OLM whether it may be upgraded, with the role
// that OLM makes for it.
func (i *Installation) addOperatorCondition() {
	const name = "spot-training-operator.v0"
	meta := metav1.ObjectMeta{Name: name, Namespace: i.Namespace}
	condition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition"}}
	condition.SetName(name)
	condition.SetNamespace(i.Namespace)
	i.ByOLM = []client.Object{
		condition,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"operators.coreos.com"}, Resources: []string{"operatorconditions"}, ResourceNames: []string{name},
			Verbs: []string{"get", "update", "patch"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: roleRef("Role", name), Subjects: i.subjects(permissions{ServiceAccountName: i.Account()}),
		},
	}
	i.Environment = []string{"OPERATOR_CONDITION_NAME=" + name, "WATCH_NAMESPACE=" + strings.Join(i.Served, ",")}
}

// IsByOLM says whether OLM made an object for its own purposes.
func (i *Installation) IsByOLM(object client.Object) bool {
	for _, one := range i.ByOLM {
		if reflect.TypeOf(one) == reflect.TypeOf(object) && client.ObjectKeyFromObject(one) == client.ObjectKeyFromObject(object) {
			return true
		}
	}
	return false
}

func (i *Installation) subjects(p permissions) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: p.ServiceAccountName, Namespace: i.Namespace}}
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}
