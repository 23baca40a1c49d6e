package api_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server converts between the versions of a kind by changing the name of the version only. That loses nothing
// as long as the versions are the same in everything else.
func TestVersionsOfAKindAreTheSame(t *testing.T) {
	for _, crd := range crds(t) {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			if conversion := crd.Spec.Conversion; conversion != nil {
				assert.Equal(t, apiextensionsv1.NoneConverter, conversion.Strategy)
			}
			first := crd.Spec.Versions[0]
			for _, version := range crd.Spec.Versions {
				assert.True(t, version.Served, "%s is not served", version.Name)
				assert.Empty(t, cmp.Diff(first.Schema, version.Schema), "schema of %s", version.Name)
				assert.Empty(t, cmp.Diff(first.Subresources, version.Subresources), "subresources of %s", version.Name)
				assert.Empty(t, cmp.Diff(first.AdditionalPrinterColumns, version.AdditionalPrinterColumns), "columns of %s", version.Name)
				assert.Empty(t, cmp.Diff(first.SelectableFields, version.SelectableFields), "selectable fields of %s", version.Name)
			}
		})
	}
}

// What kubectl takes when nobody names a version.
func TestPreferredVersions(t *testing.T) {
	want := map[string]string{
		"ml.example.com":               "v1",
		"training.training.dcnlab.com": "v1alpha1",
		"aiplatform.example.com":       "v1alpha1",
	}
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(restConfig).ServerGroups()
	require.NoError(t, err)
	got := map[string]string{}
	for _, group := range groups.Groups {
		if _, ours := want[group.Name]; ours {
			got[group.Name] = group.PreferredVersion.Version
		}
	}
	assert.Equal(t, want, got)
}

func TestTrainingJobInItsOlderVersion(t *testing.T) {
	older := inVersion(object(t, trainingJob), "ml.example.com/v1beta1")
	older.SetName("older")
	created := create(t, older)

	newer := inVersion(created, "ml.example.com/v1")
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(created), newer))
	assert.Empty(t, cmp.Diff(contentOf(created), contentOf(newer)), "read as v1 it is the same object")

	setStatus(t, newer, `{state: Running, phase: Running, currentEpoch: 3}`)
	require.NoError(t, k8s.Patch(t.Context(), newer, mergePatch(t, `spec: {suspend: true}`)))
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(created), created))
	assert.Empty(t, cmp.Diff(contentOf(newer), contentOf(created)), "what was written as v1 is read as v1beta1")
	assert.EqualValues(t, 2, created.GetGeneration(), "the spec changed once")
}

// The older version refuses what v1 refuses, and shows the same columns.
func TestTrainingJobIsTheSameInBothVersions(t *testing.T) {
	bad := with(t, object(t, trainingJob), `spec: {numWorkers: 0}`)
	messages, columns := map[string]string{}, map[string][]metav1.TableColumnDefinition{}
	for _, version := range []string{"v1", "v1beta1"} {
		err := k8s.Create(t.Context(), inVersion(bad, "ml.example.com/"+version), strictly...)
		require.Error(t, err)
		messages[version] = err.Error()
		columns[version] = columnsOf(t, "/apis/ml.example.com/"+version+"/trainingjobs")
	}
	assert.Equal(t, messages["v1"], messages["v1beta1"])
	assert.Equal(t, columns["v1"], columns["v1beta1"])
}

// columnsOf asks for a list the way kubectl get does.
func columnsOf(t *testing.T, path string) []metav1.TableColumnDefinition {
	t.Helper()
	data, err := discovery.NewDiscoveryClientForConfigOrDie(restConfig).RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(data, &table))
	require.NotEmpty(t, table.ColumnDefinitions)
	return table.ColumnDefinitions
}

func inVersion(o *unstructured.Unstructured, apiVersion string) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetAPIVersion(apiVersion)
	return o
}

// contentOf is an object without the name of its version.
func contentOf(o *unstructured.Unstructured) map[string]any {
	content := o.DeepCopy().Object
	delete(content, "apiVersion")
	return content
}
