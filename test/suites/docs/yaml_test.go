package docs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// notServed are the API groups whose kinds the API server of this test lacks, and why. Their objects are only read.
var notServed = map[string]string{
	"cert-manager.io":          "cert-manager's CRDs come with its own release",
	"kueue.x-k8s.io":           "Kueue's CRDs come with its own release",
	"monitoring.coreos.com":    "the CRDs of Prometheus Operator come with its own release",
	"olm.operatorframework.io": "the CRDs of the second OLM come with its own release",
	"scheduling.volcano.sh":    "Volcano's CRDs come with its own release",
	"scheduling.x-k8s.io":      "the CRDs of scheduler-plugins come with their own release",
	"autoscaling.k8s.io":       "the CRDs of the vertical autoscaler come with its own release",
}

// Marks of a YAML block, written after "yaml" in the line of its fence.
const (
	// markRejected is a block that the API server refuses, with the words that the text after it quotes.
	markRejected = "rejected"
	// markFragment is YAML that is no object: of another program, or part of an object that is not a TrainingJob.
	markFragment = "fragment"
)

// smallest is the TrainingJob over which a block with nothing but "spec" is laid.
const smallest = `
apiVersion: ml.example.com/v1
kind: TrainingJob
metadata: {name: example}
spec: {model: cnn, dataset: digits, numWorkers: 2, gpusPerWorker: 0}
`

// What the pages tell a user to apply, the API server takes, and what they say that it refuses it refuses with the words
// that they quote.
func TestYAMLInThePagesApplies(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.isYAML() {
				t.Run(fmt.Sprintf("%s line %d", strings.ReplaceAll(p.path, "/", "_"), b.line), func(t *testing.T) {
					testBlock(t, b)
				})
			}
		}
	}
}

func testBlock(t *testing.T, b block) {
	documents := documentsOf(t, b.text)
	if b.isMarked(markFragment) {
		return
	}
	var errs []error
	for _, document := range documents {
		if err := apply(t, completed(t, document)); err != nil {
			errs = append(errs, err)
		}
	}
	if !b.isMarked(markRejected) {
		require.Empty(t, errs, "the API server does not take it; mark a block that it is to refuse by ```yaml %s", markRejected)
		return
	}
	require.Len(t, errs, 1, "one object of a block marked %q is to be refused", markRejected)
	assert.True(t, quoted(errs[0].Error(), b.quotes), "the page does not quote the message\nthe API server says:\n%s\nthe page quotes:\n%s",
		errs[0], strings.Join(b.quotes, "\n"))
}

// documentsOf reads the documents of a block. One that names a key twice is refused.
func documentsOf(t *testing.T, text string) []map[string]any {
	t.Helper()
	var documents []map[string]any
	for _, part := range strings.Split("\n"+text, "\n---") {
		document := map[string]any{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(part), &document), "it must be YAML: one object, or several parted by ---")
		if len(document) > 0 {
			documents = append(documents, document)
		}
	}
	return documents
}

// completed makes an object of what the block shows.
func completed(t *testing.T, document map[string]any) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: document}
	if o.GetKind() != "" && o.GetAPIVersion() != "" {
		return o
	}
	require.True(t, len(document) == 1 && document["spec"] != nil,
		"it is neither an object nor a spec to be laid over a TrainingJob: complete it, or mark it by ```yaml %s", markFragment)
	base := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(smallest), &base))
	return &unstructured.Unstructured{Object: merge(base, document)}
}

func merge(base, overlay map[string]any) map[string]any {
	merged := maps.Clone(base)
	for key, value := range overlay {
		below, isMap := merged[key].(map[string]any)
		above, both := value.(map[string]any)
		if isMap && both {
			value = merge(below, above)
		}
		merged[key] = value
	}
	return merged
}

// apply asks the API server as kubectl apply --dry-run=server does.
func apply(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	if _, absent := notServed[o.GroupVersionKind().Group]; absent {
		return nil
	}
	namespaced, err := k8s.IsObjectNamespaced(o)
	if meta.IsNoMatchError(err) {
		require.NoError(t, err, "the API server of the test does not have this kind; if it cannot, say so in the table notServed")
	}
	require.NoError(t, err)
	if namespaced {
		if o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
		require.NoError(t, client.IgnoreAlreadyExists(k8s.Create(t.Context(), namespace)))
	}
	err = k8s.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// quoted says whether one of the quotations stands in the message, and is long enough to mean this message.
func quoted(message string, quotes []string) bool {
	message = strings.Join(strings.Fields(message), " ")
	return slices.ContainsFunc(quotes, func(quote string) bool {
		words := strings.Fields(quote)
		return len(words) >= 3 && strings.Contains(message, strings.Join(words, " "))
	})
}
