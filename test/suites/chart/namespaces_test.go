package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// forTeams renders a release for the namespaces a, b and 2024, in its own namespace, by kind, namespace and name.
func forTeams(t *testing.T, releaseNamespace string, values ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := helm(t, append([]string{
		"template", release, chart, "--namespace", releaseNamespace, "--kube-version", "1.37.0", "--api-versions",
		"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", `--set-json=namespaces=["team-a","team-b","2024"]`,
	}, values...)...)
	require.NoError(t, err)
	found := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		for _, object := range objects(t, document) {
			id := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
			require.NotContains(t, found, id)
			found[id] = object
		}
	}
	return found
}

func TestAReleaseOfSomeNamespacesHasNothingOfTheCluster(t *testing.T) {
	var cluster, roles []string
	rendered := forTeams(t, "training", "--set=crds.install=false,rbac.userRoles=false,networkPolicy.enabled=true")
	for id, object := range rendered {
		if object.GetNamespace() == "" {
			cluster = append(cluster, id)
		} else if strings.HasPrefix(object.GetKind(), "Role") {
			roles = append(roles, id)
		}
	}
	slices.Sort(cluster)
	slices.Sort(roles)
	assert.Equal(t, []string{
		"ClusterRole /spot-training-operator-metrics-auth-role-training", "ClusterRole /spot-training-operator-metrics-reader-training",
		"ClusterRole /spot-training-operator-namespaced-manager-role-training",
		"ClusterRoleBinding /spot-training-operator-metrics-auth-rolebinding-training",
		"ClusterRoleBinding /spot-training-operator-namespaced-manager-rolebinding-training",
	}, cluster)
	assert.Equal(t, []string{
		"Role 2024/spot-training-operator-namespaced-manager-role", "Role team-a/spot-training-operator-namespaced-manager-role",
		"Role team-b/spot-training-operator-namespaced-manager-role", "Role training/spot-training-operator-leader-election-role",
		"RoleBinding 2024/spot-training-operator-namespaced-manager-rolebinding",
		"RoleBinding team-a/spot-training-operator-namespaced-manager-rolebinding",
		"RoleBinding team-b/spot-training-operator-namespaced-manager-rolebinding",
		"RoleBinding training/spot-training-operator-leader-election-rolebinding",
	}, roles)
	assert.NotContains(t, rendered, "ServiceAccount training/spot-training-operator-node-agent")

	var role rbacv1.ClusterRole
	convert(t, rendered["ClusterRole /spot-training-operator-namespaced-manager-role-training"], &role)
	for _, rule := range role.Rules {
		if slices.Equal(rule.Resources, []string{"subjectaccessreviews"}) { // who may read the metrics
			continue
		}
		assert.Subset(t, []string{"get", "list", "watch"}, rule.Verbs, "%v", rule.Resources)
	}
	var binding rbacv1.ClusterRoleBinding
	convert(t, rendered["ClusterRoleBinding /spot-training-operator-namespaced-manager-rolebinding-training"], &binding)
	assert.Equal(t, role.Name, binding.RoleRef.Name)
	var local rbacv1.RoleBinding
	convert(t, rendered["RoleBinding 2024/spot-training-operator-namespaced-manager-rolebinding"], &local)
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: deploymentName, Namespace: "training"}}, local.Subjects)

	var deployment appsv1.Deployment
	convert(t, rendered["Deployment training/"+deploymentName], &deployment)
	arguments := deployment.Spec.Template.Spec.Containers[0].Args
	assert.Contains(t, arguments, "--namespaces=team-a,team-b,2024")
	assert.Contains(t, arguments, "--webhook-cert-mode=off")
}

func TestReleasesOfSomeNamespacesShareNoObject(t *testing.T) {
	const later = "--set=crds.install=false,rbac.userRoles=false"
	first, second := forTeams(t, "training-a"), forTeams(t, "training-b", later, `--set-json=namespaces=["team-c"]`)
	require.NotEmpty(t, second)
	for id := range second {
		assert.NotContains(t, first, id)
	}
}

func TestAReleaseOfSomeNamespacesRefusesWhatItCannotServe(t *testing.T) {
	for value, says := range map[string]string{
		"--set=jobService.enabled=true":   "jobService.enabled: its jobs become AIJobs",
		"--set=manager.requireQueue=true": "manager.requireQueue: no job would start",
		"--set=namespaces={Team_A}":       "/namespaces/0",
		"--set=namespaces={a,a}":          "/namespaces",
	} {
		_, err := helm(t, "template", release, chart, "--kube-version", "1.37.0", "--set=namespaces={team-a}", value)
		assert.ErrorContains(t, err, says, value)
	}
}

func convert(t *testing.T, object *unstructured.Unstructured, into any) {
	t.Helper()
	require.NotNil(t, object)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true))
}
