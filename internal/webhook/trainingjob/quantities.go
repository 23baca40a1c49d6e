package trainingjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		amounts, _ := descend(spec, "resources", kind).(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			check(fmt.Sprintf("spec.resources.%s[%s]", kind, name), amounts[name])
		}
	}
	check("spec.checkpoint.storage.size", descend(spec, "checkpoint", "storage", "size"))
	variables, _ := spec["env"].([]any)
	for i, variable := range variables {
		field := fmt.Sprintf("spec.env[%d].valueFrom.resourceFieldRef.divisor", i)
		check(field, descend(variable, "valueFrom", "resourceFieldRef", "divisor"))
	}
	return causes
}

func descend(value any, path ...string) any {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}
