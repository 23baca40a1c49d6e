package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// kind is one that objects are made of.
type kind struct {
	crd     apiextensionsv1.CustomResourceDefinition
	version apiextensionsv1.CustomResourceDefinitionVersion
	samples []map[string]any // the specs of config/samples
}

// kinds are the operator's, in the version that is stored.
func kinds(t *testing.T) []*kind {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(apiserver.Root(), "config", "crd", "bases", "*.yaml"))
	require.NoError(t, err)
	var all []*kind
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		k := &kind{}
		require.NoError(t, yaml.Unmarshal(text, &k.crd))
		for _, version := range k.crd.Spec.Versions {
			if version.Storage {
				k.version = version
			}
		}
		all = append(all, k)
	}
	require.NotEmpty(t, all)
	samples, err := filepath.Glob(filepath.Join(apiserver.Root(), "config", "samples", "*.yaml"))
	require.NoError(t, err)
	for _, file := range samples {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object), file)
			for _, k := range all {
				spec, ok := object.Object["spec"].(map[string]any)
				if ok && object.GetKind() == k.crd.Spec.Names.Kind && strings.HasSuffix(object.GetAPIVersion(), "/"+k.version.Name) {
					k.samples = append(k.samples, spec)
				}
			}
		}
	}
	return all
}

func (k *kind) String() string { return k.crd.Spec.Names.Kind }

func (k *kind) namespaced() bool { return k.crd.Spec.Scope == apiextensionsv1.NamespaceScoped }

// generator makes objects as users might write them: samples in which some fields are other than they were, and objects that follow the schema
// alone. Of the values about a sixth is not allowed.
type generator struct{ random *rand.Rand }

func (g generator) chance(probability float64) bool { return g.random.Float64() < probability }

func (g generator) object(k *kind, namespace, name string) *unstructured.Unstructured {
	schema := k.version.Schema.OpenAPIV3Schema.Properties["spec"]
	var spec any
	if len(k.samples) > 0 && g.chance(0.8) {
		copied := (&unstructured.Unstructured{Object: map[string]any{"spec": k.samples[g.random.IntN(len(k.samples))]}}).DeepCopy()
		spec = copied.Object["spec"]
		for range 1 + g.random.IntN(3) {
			spec = g.changed(spec, schema, 0)
		}
	} else {
		spec = g.value(schema, 0)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion(k.crd.Spec.Group + "/" + k.version.Name)
	object.SetKind(k.crd.Spec.Names.Kind)
	object.SetName(name)
	if k.namespaced() {
		object.SetNamespace(namespace)
	}
	return object
}

// changed is a value in which one field is another one.
func (g generator) changed(value any, schema apiextensionsv1.JSONSchemaProps, depth int) any {
	fields, ok := value.(map[string]any)
	if !ok || len(schema.Properties) == 0 || g.chance(0.2) && depth > 0 {
		return g.value(schema, depth)
	}
	name := pick(g, slices.Sorted(maps.Keys(schema.Properties)))
	if _, set := fields[name]; set && g.chance(0.2) {
		delete(fields, name)
		return fields
	}
	fields[name] = g.changed(fields[name], schema.Properties[name], depth+1)
	return fields
}

// value is one that a schema allows, mostly.
func (g generator) value(schema apiextensionsv1.JSONSchemaProps, depth int) any {
	if g.chance(0.05) {
		return pick(g, []any{nil, "", "x", int64(-1), int64(1 << 40), true, []any{}, map[string]any{}, "ÄÖÜ \n $(HOME) {{.}}", strings.Repeat("a", 300)})
	}
	if len(schema.Enum) > 0 {
		var value any
		if yaml.Unmarshal(pick(g, schema.Enum).Raw, &value) == nil {
			return value
		}
	}
	if schema.XIntOrString {
		return pick(g, []any{int64(1), "500m", "1Gi", "a"})
	}
	switch schema.Type {
	case "object":
		return g.fields(schema, depth)
	case "array":
		items := []any{}
		if schema.Items != nil && schema.Items.Schema != nil && depth < 8 {
			for range g.random.IntN(3) {
				items = append(items, g.value(*schema.Items.Schema, depth+1))
			}
		}
		return items
	case "integer":
		return g.integer(schema)
	case "number":
		return float64(g.integer(schema)) + pick(g, []float64{0, 0.5})
	case "boolean":
		return g.chance(0.5)
	default:
		return g.text()
	}
}

func (g generator) fields(schema apiextensionsv1.JSONSchemaProps, depth int) map[string]any {
	fields := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		required := slices.Contains(schema.Required, name)
		if required && g.chance(0.97) || !required && depth < 8 && g.chance(0.15) {
			fields[name] = g.value(schema.Properties[name], depth+1)
		}
	}
	if extra := schema.AdditionalProperties; extra != nil && extra.Schema != nil {
		for i := range g.random.IntN(3) {
			fields[fmt.Sprintf("key-%d", i)] = g.value(*extra.Schema, depth+1)
		}
	}
	return fields
}

// integer is small, or at one of the limits, or beyond.
func (g generator) integer(schema apiextensionsv1.JSONSchemaProps) int64 {
	choices := []int64{0, 1, 2, 3, 5}
	if schema.Minimum != nil {
		choices = append(choices, int64(*schema.Minimum), int64(*schema.Minimum), int64(*schema.Minimum)-1)
	}
	if schema.Maximum != nil && *schema.Maximum <= 100 { // large jobs cost time and show nothing more
		choices = append(choices, int64(*schema.Maximum), int64(*schema.Maximum)+1)
	}
	return pick(g, choices)
}

func (g generator) text() string {
	return pick(g, []string{
		"a", "name-1", "registry.example.com/train:1", "s3://bucket/path", "1h", "10s", "100m", "4Gi", "us-central1-a", "sh", "$(VAR)", "0 3 * * *", "A B", "..", "default",
		"first", "train", "https://example.com", strings.Repeat("n", 64),
	})
}

func pick[T any](g generator, from []T) T { return from[g.random.IntN(len(from))] }
