package main

import "fmt"

// trim removes a description. A property that is named description is a schema, not a text, and stays.
//
// SpotInstanceJob embeds a batch/v1 Job template. Its whole schema is part of the CRD, so that the API server rejects a
// wrong field at once; the other way, an object without a schema, would let a misspelled field pass, and the user would
// notice when the replica behaves differently. With the descriptions of every field of a pod that schema takes 340 kB,
// more than the 256 KiB that kubectl apply can keep in an annotation, and controller-gen can only shorten the
// descriptions of all fields alike. Without them it takes 70 kB; kubectl explain job.spec has the same text.
func trim(schema map[string]any) {
	if _, isText := schema["description"].(string); isText {
		delete(schema, "description")
	}
}

// inField applies a change to all schemas in spec.field of every version; spec.field itself keeps its description.
func inField(change func(schema map[string]any)) func(crd map[string]any, field string) error {
	return func(crd map[string]any, field string) error {
		for _, version := range versionsOf(crd) {
			schema := descend(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", field)
			if schema == nil {
				return fmt.Errorf("the schema has no field spec.%s", field)
			}
			description, described := schema["description"]
			walk(schema, change)
			if described {
				schema["description"] = description
			}
		}
		return nil
	}
}

func walk(value any, change func(schema map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		change(v)
		for key, child := range v {
			if key != "anyOf" { // of a number or a text: the API server takes the type only of these schemas
				walk(child, change)
			}
		}
	case []any:
		for _, child := range v {
			walk(child, change)
		}
	}
}

func versionsOf(crd map[string]any) []any {
	versions, _ := descend(crd, "spec")["versions"].([]any)
	return versions
}

func descend(value any, path ...string) map[string]any {
	object, _ := value.(map[string]any)
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}
