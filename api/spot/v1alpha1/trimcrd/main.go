// Command trimcrd takes the descriptions out of the pod template in the CRD of SpotInstanceJob.
//
// SpotInstanceJob embeds a batch/v1 Job template. Its whole schema is part of the CRD, so that the API server rejects a
// wrong field at once; the other way, an object without a schema, would let a misspelt field pass, and the user would
// notice when the replica behaves differently. With the descriptions of every field of a pod that schema takes 340 kB,
// more than the 256 KiB that kubectl apply can keep in an annotation, and controller-gen can only shorten the
// descriptions of all fields alike. Without them it takes 70 kB; kubectl explain job.spec has the same text.
//
// Usage, after controller-gen: trimcrd FILE FIELD, where FIELD is the field of spec whose subtree is trimmed.
package main

import (
	"bytes"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: trimcrd FILE FIELD")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "trimcrd:", err)
		os.Exit(1)
	}
}

// run rewrites the CRD in file in the layout that controller-gen gives it.
func run(file, field string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := trim(crd, field); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), bytes.TrimLeft(out, "\n")...), 0o644)
}

// trim removes the descriptions below spec.field of every version; spec.field itself keeps its own.
func trim(crd map[string]any, field string) error {
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, version := range versions {
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
