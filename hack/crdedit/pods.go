package main

import (
	"fmt"
	"slices"
	"strings"
)

// What pods changes are the fields of api/podtemplate, whose types are Kubernetes' own: controller-gen writes them whole.
//
// Their descriptions would take most of the 256 KiB that kubectl apply can keep of a CRD in an annotation, so that the parts of
// each field have none; kubectl explain pod.spec has the same text. What no user may set is left out, so that kubectl refuses it by name.
// And all lists and texts in them get limits, without which the API server takes each validation rule for too costly.

// sourcesOfVolumes are those that a volume can have. With hostPath a rule can say what is wrong.
var sourcesOfVolumes = []string{
	"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs", "persistentVolumeClaim", "projected", "secret",
}

// unusedOfContainers are fields of init containers that have no use in them, or reach beyond the pod.
var unusedOfContainers = []string{"lifecycle", "livenessProbe", "ports", "resizePolicy", "restartPolicyRules", "stdin", "stdinOnce", "tty", "volumeDevices"}

const (
	longestText = 4096
	longestList = 64
)

// pods changes the fields of api/podtemplate in spec, or in spec.FIELD.
func pods(crd map[string]any, field string) error {
	for _, version := range versionsOf(crd) {
		path := []string{"schema", "openAPIV3Schema", "properties", "spec"}
		if field != "." {
			path = append(path, "properties", field)
		}
		schema := descend(version, path...)
		own := descend(schema, "properties", "podTemplate", "properties")
		volume := descend(schema, "properties", "volumes", "items", "properties")
		container := descend(own, "initContainers", "items", "properties")
		if volume == nil || container == nil {
			return fmt.Errorf("spec has no fields of a pod in %s", field)
		}
		for name := range volume {
			if name != "name" && !slices.Contains(sourcesOfVolumes, name) {
				delete(volume, name)
			}
		}
		for _, name := range unusedOfContainers {
			delete(container, name)
		}
		claim := descend(volume, "ephemeral", "properties", "volumeClaimTemplate", "properties", "metadata", "properties")
		for _, name := range []string{"finalizers", "name", "namespace"} { // of the claim, which has the name of its pod
			delete(claim, name)
		}
		fields := []string{"volumes", "volumeMounts", "envFrom"}
		if descend(schema, "properties", "priorityClassName") != nil { // TrainingJobs have the others since before there were limits
			fields = append(fields, "securityContext", "affinity", "imagePullSecrets")
		}
		for _, name := range fields {
			shorten(descend(schema, "properties", name))
		}
		for name := range own {
			shorten(descend(own, name))
		}
		if field != "." {
			for _, name := range []string{"volumes", "volumeMounts", "envFrom", "podTemplate"} {
				walk(descend(schema, "properties", name), func(schema map[string]any) { rename(schema, "spec."+field+".") })
			}
		}
	}
	return nil
}

// shorten takes out the descriptions below a field, and limits what is in it.
func shorten(field map[string]any) {
	if field == nil {
		return
	}
	description := field["description"]
	walk(field, trim)
	walk(field, bound)
	walk(field, limit)
	if description != nil {
		field["description"] = description
	}
}

// limit sets the maximum length of a string, list or map that has none.
func limit(schema map[string]any) {
	most := func(key string, number int) {
		if _, set := schema[key]; !set {
			schema[key] = number
		}
	}
	switch kind, _ := schema["type"].(string); {
	case kind == "string" && schema["enum"] == nil, schema["x-kubernetes-int-or-string"] == true:
		most("maxLength", longestText)
	case kind == "array":
		most("maxItems", longestList)
	case kind == "object" && schema["additionalProperties"] != nil:
		most("maxProperties", longestList)
	}
}

// rename has the messages of the rules name the field as users write it.
func rename(schema map[string]any, prefix string) {
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, rule := range rules {
		rule := descend(rule)
		if message, _ := rule["message"].(string); strings.HasPrefix(message, "spec.") && !strings.HasPrefix(message, prefix) {
			rule["message"] = prefix + strings.TrimPrefix(message, "spec.")
		}
	}
}
