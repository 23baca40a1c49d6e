package main

import (
	"fmt"
	"math"
)

// bound gives every int32 below spec.field of every version the bounds of that type, where it has none.
//
// Types of Kubernetes' own that are embedded there cannot be marked. Before Kubernetes 1.36 the API server does not hold integers
// to their format, and one stored object with a number that is no int32 has every list of its kind fail.
func bound(crd map[string]any, field string) error {
	for _, version := range versionsOf(crd) {
		schema := descend(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", field)
		if schema == nil {
			return fmt.Errorf("the schema has no field spec.%s", field)
		}
		boundIntegers(schema)
	}
	return nil
}

func boundIntegers(value any) {
	switch v := value.(type) {
	case map[string]any:
		if v["format"] == "int32" { // a property of that name is a schema, not a text
			for bound, number := range map[string]int64{"minimum": math.MinInt32, "maximum": math.MaxInt32} {
				if _, set := v[bound]; !set {
					v[bound] = number
				}
			}
		}
		for _, child := range v {
			boundIntegers(child)
		}
	case []any:
		for _, child := range v {
			boundIntegers(child)
		}
	}
}
