package api_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// What OLM's console offers as an example can be created as it is.
func TestExamplesOfTheBundleApply(t *testing.T) {
	data, err := os.ReadFile(root + "/bundle/manifests/spot-training-operator.clusterserviceversion.yaml")
	require.NoError(t, err)
	var csv unstructured.Unstructured
	require.NoError(t, yaml.Unmarshal(data, &csv.Object))
	var examples []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(csv.GetAnnotations()["alm-examples"]), &examples))
	require.NotEmpty(t, examples)
	for _, example := range examples {
		o := object(t, string(example))
		t.Run(o.GetKind()+" "+o.GetAPIVersion()+" "+o.GetName(), func(t *testing.T) {
			require.NoError(t, k8s.Create(t.Context(), o, strictly...))
			assertDecodes(t, o)
		})
	}
}
