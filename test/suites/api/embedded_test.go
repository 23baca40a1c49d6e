package api_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Labels and annotations of a Job and its pods are what other tools go by: none may be dropped on the way.
func TestTheTemplateOfASpotInstanceJobKeepsItsMetadata(t *testing.T) {
	created := create(t, with(t, object(t, spotInstanceJob), `
metadata: {name: labelled}
spec:
  jobTemplate:
    metadata: {labels: {team: vision}, annotations: {example.com/note: job}}
    spec:
      template:
        metadata: {labels: {team: vision}, annotations: {example.com/note: pod}}
`))

	for note, at := range map[string][]string{
		"job": {"spec", "jobTemplate", "metadata"},
		"pod": {"spec", "jobTemplate", "spec", "template", "metadata"},
	} {
		labels, _, err := unstructured.NestedStringMap(created.Object, append(at, "labels")...)
		require.NoError(t, err)
		annotations, _, err := unstructured.NestedStringMap(created.Object, append(at, "annotations")...)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "vision"}, labels, note)
		assert.Equal(t, map[string]string{"example.com/note": note}, annotations, note)
	}
}
