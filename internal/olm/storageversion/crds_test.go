package storageversion

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

var configFolder = filepath.Join("..", "..", "..", "config")

// Every CRD that is installed is looked at, and the manager may do what a migration of its objects takes.
func TestInstalledCRDsCanBeMigrated(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(configFolder, "crd", "bases", "*.yaml"))
	require.NoError(t, err)
	rights, err := installations.ManagerRights(rbacv1.Subject{})
	require.NoError(t, err)
	var rules []rbacv1.PolicyRule
	for _, object := range rights {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			rules = append(rules, role.Rules...)
		}
	}
	may := func(verb, group, resource, name string) {
		t.Helper()
		assert.True(t, slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) &&
				(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
		}), "the manager may not %s %s %s.%s: add it to the markers in crds.go", verb, name, resource, group)
	}
	const definitions = "customresourcedefinitions"
	var names []string
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		read(t, file, crd)
		names = append(names, crd.Name)
		for _, verb := range []string{"get", "list", "watch"} {
			may(verb, apiextensionsv1.GroupName, definitions, crd.Name)
		}
		if len(crd.Spec.Versions) > 1 {
			may("patch", apiextensionsv1.GroupName, definitions+"/status", crd.Name)
			may("list", crd.Spec.Group, crd.Spec.Names.Plural, "")
			may("patch", crd.Spec.Group, crd.Spec.Names.Plural, "")
		}
	}
	assert.ElementsMatch(t, names, CRDs())
}

func read(t *testing.T, file string, object any) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, object), file)
}
