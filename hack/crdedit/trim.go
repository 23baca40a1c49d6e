package main

import "fmt"

// trim removes the descriptions below spec.field of every version; spec.field itself keeps its own.
//
// SpotInstanceJob embeds a batch/v1 Job template. Its whole schema is part of the CRD, so that the API server rejects a
// wrong field at once; the other way, an object without a schema, would let a misspelled field pass, and the user would
// notice when the replica behaves differently. With the descriptions of every field of a pod that schema takes 340 kB,
// more than the 256 KiB that kubectl apply can keep in an annotation, and controller-gen can only shorten the
// descriptions of all fields alike. Without them it takes 70 kB; kubectl explain job.spec has the same text.
func trim(crd map[string]any, field string) error {
	for _, version := range versionsOf(crd) {
		schema := descend(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", field)
		if schema == nil {
			return fmt.Errorf("the schema has no field spec.%s", field)
		}
		description := schema["description"]
		dropDescriptions(schema)
		schema["description"] = description
	}
	return nil
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

// dropDescriptions removes the description of a schema and of all schemas in it. A property that is named description
// is a schema, not a text, and stays.
func dropDescriptions(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, isText := v["description"].(string); isText {
			delete(v, "description")
		}
		for _, child := range v {
			dropDescriptions(child)
		}
	case []any:
		for _, child := range v {
			dropDescriptions(child)
		}
	}
}
