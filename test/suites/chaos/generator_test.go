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

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
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
	require.Len(t, all, 8, "a kind that came or went is to be found in the table of outcomes")
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

func (k *kind) schema() apiextensionsv1.JSONSchemaProps { return *k.version.Schema.OpenAPIV3Schema }

func (k *kind) specSchema() apiextensionsv1.JSONSchemaProps { return k.schema().Properties["spec"] }

// observes says whether the status tells which generation it speaks of.
func (k *kind) observes() bool {
	_, tells := k.schema().Properties["status"].Properties["observedGeneration"]
	return tells
}

// expires says whether objects can be given a time to live, after which they are gone.
func (k *kind) expires() bool {
	_, can := k.specSchema().Properties["ttlSecondsAfterFinished"]
	return can
}

// generator makes objects as users might write them: samples in which some fields are other than they were, and objects that follow the schema
// alone. Of the values about a sixth is not allowed.
type generator struct {
	random *rand.Rand
	names  map[string][]string // of objects that others can refer to, by kind
}

// references are the fields that name an object of another kind: as a text, or as an object with a name.
var references = map[string]string{
	"queueName": "AIJobQueue", "clusterName": "ComputeCluster", "agent": "Agent", "spot": "SpotInstanceVM", "spotInstanceVMRef": "SpotInstanceVM",
}

func (g generator) chance(probability float64) bool { return g.random.Float64() < probability }

// name is one that no other number has. A few are not allowed, or not for all kinds.
func (g generator) name(number uint64) string {
	if g.chance(0.02) {
		return fmt.Sprintf(pick(g, []string{"Fuzz-%d", "fuzz_%d", "fuzz.%d", "%d-fuzz", "fuzz-" + strings.Repeat("n", 40) + "-%d"}), number)
	}
	return fmt.Sprintf("fuzz-%d", number)
}

// object is one to create.
func (g generator) object(k *kind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": g.spec(k)}}
	object.SetAPIVersion(k.crd.Spec.Group + "/" + k.version.Name)
	object.SetKind(k.crd.Spec.Names.Kind)
	object.SetName(name)
	if k.namespaced() {
		object.SetNamespace(namespace)
	}
	if g.chance(0.2) {
		g.describe(object)
	}
	return object
}

func (g generator) spec(k *kind) any {
	if len(k.samples) == 0 || g.chance(0.2) {
		return g.value(k.specSchema(), 0)
	}
	return g.edited(k, copied(k.samples[g.random.IntN(len(k.samples))]))
}

// edited is a spec in which up to three fields are other than they were.
func (g generator) edited(k *kind, spec any) any {
	for range 1 + g.random.IntN(3) {
		spec = g.changed(spec, k.specSchema(), 0)
	}
	return spec
}

func copied(spec map[string]any) any {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	return object.DeepCopy().Object["spec"]
}

// update is what a user makes of an object that there is: some fields, or the whole spec, labels, annotations, or several of these.
func (g generator) update(k *kind, is *unstructured.Unstructured) *unstructured.Unstructured {
	is = is.DeepCopy()
	what := g.random.Float64()
	switch spec, _ := is.Object["spec"].(map[string]any); {
	case what < 0.6 && spec != nil:
		is.Object["spec"] = g.edited(k, spec)
	case what < 0.85:
		is.Object["spec"] = g.spec(k)
	}
	if what > 0.85 || g.chance(0.3) {
		g.describe(is)
	}
	return is
}

// describe gives an object labels and annotations, or takes those away that it has.
func (g generator) describe(object *unstructured.Unstructured) {
	labels := []string{"app", "team.example.com/owner", "kueue.x-k8s.io/queue-name", mlv1.LabelTrainingJob, aiplatformv1alpha1.LabelQueue, "two/slashes/x"}
	annotations := []string{
		"note", mlv1.AnnotationCheckpointNow, mlv1.AnnotationPricePerHour, mlv1.AnnotationPriceCurrency, aiplatformv1alpha1.AnnotationUser,
		spotv1alpha1.AnnotationOperatorIdentity, "-",
	}
	values := []string{"", "a", "1", "0.5", "EUR", "true", "not a label", strings.Repeat("l", 64), "2026-01-02T03:04:05Z"}
	object.SetLabels(g.pairs(labels, values))
	object.SetAnnotations(g.pairs(annotations, values))
}

// pairs are up to two. The first names and values are frequent.
func (g generator) pairs(names, values []string) map[string]string {
	pairs := map[string]string{}
	for range g.random.IntN(3) {
		pairs[names[g.early(len(names))]] = values[g.early(len(values))]
	}
	return pairs
}

// early is less than n, and rather small.
func (g generator) early(n int) int { return min(g.random.IntN(n), g.random.IntN(n)) }

// changed is a value in which one field is another one.
func (g generator) changed(value any, schema apiextensionsv1.JSONSchemaProps, depth int) any {
	if items, ok := value.([]any); ok && len(items) > 0 && schema.Items != nil && schema.Items.Schema != nil && g.chance(0.7) {
		i := g.random.IntN(len(items))
		items[i] = g.changed(items[i], *schema.Items.Schema, depth+1)
		return items
	}
	fields, ok := value.(map[string]any)
	if !ok || len(schema.Properties) == 0 || g.chance(0.2) && depth > 0 {
		return g.value(schema, depth)
	}
	name := pick(g, slices.Sorted(maps.Keys(schema.Properties)))
	switch before, set := fields[name]; {
	case g.chance(0.02):
		fields[name+"s"] = "misspelled"
	case set && g.chance(0.2):
		delete(fields, name)
	case isCompound(before):
		fields[name] = g.changed(before, schema.Properties[name], depth+1)
	default:
		fields[name] = g.field(name, schema.Properties[name], depth+1)
	}
	return fields
}

func isCompound(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// field is a value of a field, which may name another object.
func (g generator) field(name string, schema apiextensionsv1.JSONSchemaProps, depth int) any {
	if names := g.names[references[name]]; len(names) > 0 && g.chance(0.6) {
		switch other := pick(g, names); {
		case schema.Type == "string":
			return other
		case schema.Properties["name"].Type == "string":
			return map[string]any{"name": other}
		}
	}
	return g.value(schema, depth)
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
			fields[name] = g.field(name, schema.Properties[name], depth+1)
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
