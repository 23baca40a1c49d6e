package api_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// strictly is how kubectl apply --dry-run=server asks.
var strictly = []client.CreateOption{client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)}

// object is the object that a YAML document describes, in namespace default unless it is named or cluster-scoped.
func object(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), &content))
	o := &unstructured.Unstructured{Object: content}
	namespaced, err := k8s.IsObjectNamespaced(o)
	require.NoError(t, err)
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	return o
}

// with returns the object with a change laid over it: a YAML document whose maps are merged, and in which null removes.
func with(t *testing.T, base *unstructured.Unstructured, change string) *unstructured.Unstructured {
	t.Helper()
	overlay := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(change), &overlay), "the change must be YAML")
	return &unstructured.Unstructured{Object: merge(base.DeepCopy().Object, overlay)}
}

func merge(base, overlay map[string]any) map[string]any {
	merged := maps.Clone(base)
	for key, value := range overlay {
		switch v := value.(type) {
		case nil:
			delete(merged, key)
		case map[string]any:
			below, _ := merged[key].(map[string]any)
			if below == nil {
				below = map[string]any{}
			}
			merged[key] = merge(below, v)
		default:
			merged[key] = value
		}
	}
	return merged
}

// rejection is a change that the API server must refuse with a message that names the field and says what to do.
type rejection struct {
	// name of the case, as the end of the sentence "the API server rejects".
	name string
	// change to an object that is accepted without it.
	change string
	// field of the error, or part of the message when the object cannot be read at all.
	field string
	// remedy is the part of the message that says what is allowed or what to do.
	remedy string
}

// assertRejected checks that an error refuses the field with the remedy in the same cause.
func assertRejected(t *testing.T, err error, want rejection) {
	t.Helper()
	require.Error(t, err, "it was accepted")
	t.Log(err)
	var status *apierrors.StatusError
	require.ErrorAs(t, err, &status)
	if details := status.ErrStatus.Details; details != nil {
		for _, cause := range details.Causes {
			if cause.Field == want.field && strings.Contains(cause.Message, want.remedy) {
				return
			}
		}
	}
	// A value of the wrong type, an unknown field or a bad subresource is refused without causes.
	if !apierrors.IsInvalid(errors.Unwrap(err)) && !apierrors.IsInvalid(err) {
		assert.ErrorContains(t, err, want.field)
		assert.ErrorContains(t, err, want.remedy)
		return
	}
	assert.Failf(t, "not the expected message", "want field %q with %q in:\n%s", want.field, want.remedy, causes(status))
}

func causes(status *apierrors.StatusError) string {
	var lines []string
	if details := status.ErrStatus.Details; details != nil {
		for _, cause := range details.Causes {
			lines = append(lines, cause.Field+": "+cause.Message)
		}
	}
	return strings.Join(append(lines, status.ErrStatus.Message), "\n")
}

// testRejections applies every change to the base, which itself must be accepted.
func testRejections(t *testing.T, base string, tests []rejection) {
	t.Helper()
	good := object(t, base)
	require.NoError(t, k8s.Create(t.Context(), good.DeepCopy(), strictly...), "the base must be accepted")
	names := map[string]bool{}
	for _, test := range tests {
		require.False(t, names[test.name], "two cases are named %q", test.name)
		names[test.name] = true
		t.Run(test.name, func(t *testing.T) {
			assertRejected(t, k8s.Create(t.Context(), with(t, good, test.change), strictly...), test)
		})
	}
}
