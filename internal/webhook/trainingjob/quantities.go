package trainingjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unreadableQuantities names the amounts in a spec that no client can read. The schema refuses them too, but says so by
// a regular expression.
func unreadableQuantities(spec map[string]any) []metav1.StatusCause {
	var causes []metav1.StatusCause
	check := func(field string, value any) {
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		default:
			return // another type: the schema says what it should be
		}
		if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err != nil {
			causes = append(causes, metav1.StatusCause{
				Type: metav1.CauseTypeFieldValueInvalid, Field: field,
				Message: fmt.Sprintf("%q is not an amount that Kubernetes can read: write for example 1, 500m or 32Gi", text),
			})
		}
	}
	for _, kind := range []string{"limits", "requests"} {
		field, _, _ := unstructured.NestedFieldNoCopy(spec, "resources", kind)
		amounts, _ := field.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			check(fmt.Sprintf("spec.resources.%s[%s]", kind, name), amounts[name])
		}
	}
	size, _, _ := unstructured.NestedFieldNoCopy(spec, "checkpoint", "storage", "size")
	check("spec.checkpoint.storage.size", size)
	variables, _ := spec["env"].([]any)
	for i := range variables {
		variable, _ := variables[i].(map[string]any)
		divisor, _, _ := unstructured.NestedFieldNoCopy(variable, "valueFrom", "resourceFieldRef", "divisor")
		check(fmt.Sprintf("spec.env[%d].valueFrom.resourceFieldRef.divisor", i), divisor)
	}
	return causes
}
