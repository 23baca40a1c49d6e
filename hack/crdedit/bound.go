package main

import "math"

// bound gives an int32 the bounds of that type, where it has none.
//
// Types of Kubernetes' own that are embedded in a spec cannot be marked. Before Kubernetes 1.36 the API server does not hold integers
// to their format, and one stored object with a number that is no int32 has every list of its kind fail.
func bound(schema map[string]any) {
	if schema["format"] != "int32" { // a property of that name is a schema, not a text
		return
	}
	for bound, number := range map[string]int64{"minimum": math.MinInt32, "maximum": math.MaxInt32} {
		if _, set := schema[bound]; !set {
			schema[bound] = number
		}
	}
}
