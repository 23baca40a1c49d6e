package chaos

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// unclear says what the refusal of an object lacks. It is empty when the refusal names a field that there is.
func unclear(k *kind, sent *unstructured.Unstructured, err error) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err) {
		return "it is no refusal"
	}
	named := fieldsOf(answer.Status())
	for _, field := range named {
		if k.hasField(sent, field) {
			return ""
		}
	}
	return fmt.Sprintf("it names no field that there is, but %q", named)
}

// fieldPath is a path of at least two steps: "spec" alone is said of all that is wrong in an object.
var fieldPath = regexp.MustCompile(`\b(?:spec|metadata)(?:\.[A-Za-z0-9_/-]+|\[[^\]]*\])+`)

// fieldsOf are the fields that a refusal names, as causes and in its text.
func fieldsOf(status metav1.Status) []string {
	fields := fieldPath.FindAllString(status.Message, -1)
	if status.Details == nil {
		return fields
	}
	for _, cause := range status.Details.Causes {
		// What is missing or of another type is the spec itself.
		whole := cause.Type == metav1.CauseTypeFieldValueRequired || cause.Type == metav1.CauseTypeTypeInvalid
		if fieldPath.FindString(cause.Field) == cause.Field || cause.Field == "spec" && whole {
			fields = append(fields, cause.Field)
		}
	}
	return fields
}

// ofMetadata are the fields of metadata that users write.
var ofMetadata = []string{"name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences"}

var fieldStep = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// hasField says whether the schema has a field, or the object that was sent.
func (k *kind) hasField(sent *unstructured.Unstructured, path string) bool {
	steps := fieldStep.FindAllString(path, -1)
	if len(steps) > 1 && steps[0] == "metadata" {
		return slices.Contains(ofMetadata, steps[1])
	}
	at, value := k.schema(), any(sent.Object)
	for _, step := range steps {
		if ptr.Deref(at.XPreserveUnknownFields, false) {
			return true
		}
		name, index := strings.CutPrefix(step, "[")
		fields, _ := value.(map[string]any)
		items, _ := value.([]any)
		next, known := at.Properties[name]
		switch {
		case known && !index:
			at = next
		case at.AdditionalProperties != nil && at.AdditionalProperties.Schema != nil:
			at = *at.AdditionalProperties.Schema
		case index && at.Items != nil && at.Items.Schema != nil:
			at = *at.Items.Schema
		default: // one that is misspelled
			_, is := fields[name]
			return is
		}
		value = fields[name]
		if i, err := strconv.Atoi(strings.TrimSuffix(name, "]")); index && err == nil && i < len(items) {
			value = items[i]
		}
	}
	return true
}

func TestARefusalIsClearWhenItNamesAField(t *testing.T) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	k := &kind{version: apiextensionsv1.CustomResourceDefinitionVersion{Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"image":  text,
				"env":    {AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &text}},
				"stages": {Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": text}}}},
			}},
		}},
	}}}
	sent := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"imagee": "a", "stages": []any{map[string]any{"names": "b"}}}}}
	invalid := func(kind metav1.CauseType, field, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonInvalid, Message: message, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: kind, Field: field}}},
		}}
	}
	for name, test := range map[string]struct {
		err   error
		clear bool
	}{
		"a cause":                    {invalid(metav1.CauseTypeFieldValueInvalid, "spec.image", ""), true},
		"an item":                    {invalid(metav1.CauseTypeFieldValueInvalid, "spec.stages[0].name", ""), true},
		"a key":                      {invalid(metav1.CauseTypeFieldValueInvalid, "spec.env.PATH", ""), true},
		"a label":                    {invalid(metav1.CauseTypeFieldValueInvalid, "metadata.labels", ""), true},
		"the text":                   {invalid(metav1.CauseTypeFieldValueInvalid, "spec", "spec.image: must be short"), true},
		"the text of a webhook":      {apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("spec.image: is not served")), true},
		"the spec, which is missing": {invalid(metav1.CauseTypeFieldValueRequired, "spec", ""), true},
		"a field that is misspelled": {apierrors.NewBadRequest(`strict decoding error: unknown field "spec.imagee"`), true},
		"an item's, too":             {apierrors.NewBadRequest(`strict decoding error: unknown field "spec.stages[0].names"`), true},
		"the spec as a whole":        {invalid(metav1.CauseTypeFieldValueInvalid, "spec", "spec: Invalid value: must be specified"), false},
		"a part of a word":           {apierrors.NewBadRequest("an unspecified error"), false},
		"a field that there is not":  {apierrors.NewBadRequest("spec.picture: is wrong"), false},
		"no refusal":                 {apierrors.NewInternalError(errors.New("spec.image")), false},
		"no answer":                  {errors.New("spec.image: connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.clear, unclear(k, sent, test.err) == "", unclear(k, sent, test.err))
		})
	}
}
