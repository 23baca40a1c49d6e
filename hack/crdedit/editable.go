package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The rules in the spec that keep a field as it is see neither the status nor the fields beside the spec. editable moves them to the
// object itself, where they hold only while the job cannot be edited.

// editing says when and which fields of a kind can be changed.
type editing struct {
	// while is the rule that says so of the stored object, and first the same before the job was ever started.
	while, first string
	// checkpoints is what the API server says of where they are, which can be changed only then, too.
	checkpoints string
}

// startable are reasons that keep a TrainingJob from being started until its spec, or what it names, is corrected.
const startable = "['InvalidSpec', 'FrameworkNotSupported', 'StorageNotSupported', 'ResumeSourceNotFound', 'ClaimNotFound', 'QueueRequired', " +
	"'GangNotServed', 'KueueNotServed']"

// unfetched are reasons for which a TrainingJob tries again to fetch its code.
const unfetched = "['SourceNotFound', 'SourceUnreachable', 'SourceAccessDenied', 'SourceVolumeFull']"

// heldByKueue are reasons of a TrainingJob that waits for Kueue; one of an AIJobQueue has status.admission.
const heldByKueue = "['Queued', 'EvictedByQueue', 'RequeuedAfterEdit']"

// The API server cannot estimate what optional fields cost (self.?field), so that the rules ask for each with has.
const editableTrainingJob = "(has(oldSelf.status) && has(oldSelf.status.state) && (" +
	"(has(oldSelf.spec.suspend) && oldSelf.spec.suspend && oldSelf.status.state == 'Suspended') || " +
	"(oldSelf.status.state in ['Pending', 'Suspended'] && ((has(oldSelf.status.reason) && oldSelf.status.reason in " + startable + ") || " +
	"(has(oldSelf.status.reason) && oldSelf.status.reason in " + heldByKueue + " && !has(oldSelf.status.admission)) || " +
	"(has(oldSelf.status.admission) && !has(oldSelf.status.admission.admittedTime)))) || " +
	"(oldSelf.status.state == 'Restarting' && has(oldSelf.status.reason) && oldSelf.status.reason in " + unfetched + ")))"

var editings = map[string]editing{
	"TrainingJob": {
		while: editableTrainingJob, first: "(" + editableTrainingJob + " && (!has(oldSelf.status.startCount) || oldSelf.status.startCount == 0))",
		checkpoints: "spec.checkpoint.storage, resumeFrom and resumeSecretRef: can be changed only before the first start, while the job is suspended or " +
			"queued: delete the job and create it again, its checkpoints are kept",
	},
	"AIJob": {
		while: "!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase in ['Pending', 'Queued', 'Retrying', 'DeadLetter']",
	},
}

// samePlace says that what decides where earlier checkpoints are is as it was; the rest of spec.checkpoint can be changed later too.
var samePlace = "(has(self.spec.checkpoint) == has(oldSelf.spec.checkpoint) && (!has(self.spec.checkpoint) || (" +
	same("checkpoint.storage") + " && " + same("checkpoint.resumeFrom") + " && " + same("checkpoint.resumeSecretRef") + ")))"

var (
	movable     = regexp.MustCompile(`^spec\.([A-Za-z]+): can be changed only `)
	ofSpec      = regexp.MustCompile(`\b(self|oldSelf)\.`)
	comparesAll = regexp.MustCompile(`^(has\(self\.\w+\) == has\(oldSelf\.\w+\)( && .*)?|self(\.\w+)? == oldSelf(\.\w+)?)$`)
)

// editable moves the rules of a kind.
func editable(crd map[string]any, kind string) error {
	of, known := editings[kind]
	if !known {
		return fmt.Errorf("it is not known when a %s can be edited", kind)
	}
	for _, version := range versionsOf(crd) {
		object := descend(version, "schema", "openAPIV3Schema")
		spec := descend(object, "properties", "spec")
		moved := take(spec, "", &of)
		for name, field := range descend(spec, "properties") {
			moved = append(moved, take(descend(field), name, &of)...)
		}
		if len(moved) == 0 {
			continue // it was done before
		}
		rules, _ := object["x-kubernetes-validations"].([]any)
		object["x-kubernetes-validations"] = append(rules, sorted(moved)...)
	}
	return nil
}

// take takes the rules out of a schema, and returns them as they are for the object.
func take(schema map[string]any, below string, of *editing) (moved []any) {
	rules, _ := schema["x-kubernetes-validations"].([]any)
	var kept []any
	for _, each := range rules {
		rule := descend(each)
		message, _ := rule["message"].(string)
		found := movable.FindStringSubmatch(message)
		if len(found) == 0 {
			kept = append(kept, each)
			continue
		}
		text, _ := rule["rule"].(string)
		field, while := found[1], of.while
		if strings.Contains(message, "only before the first start") {
			while = of.first
		}
		moved = append(moved, ruleOf(field, while+" || "+forObject(text, field, below), message))
		if field == "checkpoint" {
			moved = append(moved, ruleOf(field, of.first+" || "+samePlace, of.checkpoints))
		}
	}
	if len(kept) == 0 {
		delete(schema, "x-kubernetes-validations")
	} else if len(kept) < len(rules) {
		schema["x-kubernetes-validations"] = kept
	}
	return moved
}

// ruleOf is a rule of the object about a field of the spec.
func ruleOf(field, rule, message string) map[string]any {
	return map[string]any{"rule": rule, "message": message, "fieldPath": ".spec." + field}
}

// forObject is a rule of the spec, or of one of its fields, as a rule of the object.
func forObject(text, field, below string) string {
	if whole := field != "resources" && below == "" || text == "self == oldSelf"; whole && comparesAll.MatchString(text) {
		return same(field)
	}
	if below == "" {
		return "(" + ofSpec.ReplaceAllString(text, "$1.spec.") + ")"
	}
	there := fmt.Sprintf("!has(self.spec.%s) || !has(oldSelf.spec.%s) || ", below, below)
	return "(" + there + ofSpec.ReplaceAllString(text, "$1.spec."+below+".") + ")"
}

// same says that a field of the spec is as it was.
func same(field string) string {
	return strings.ReplaceAll("(has(self.spec.FIELD) == has(oldSelf.spec.FIELD) && (!has(self.spec.FIELD) || self.spec.FIELD == oldSelf.spec.FIELD))",
		"FIELD", field)
}

// sorted are the rules by field, each once.
func sorted(rules []any) []any {
	byText := map[string]any{}
	var texts []string
	for _, rule := range rules {
		of := descend(rule)
		text := strings.Join([]string{of["fieldPath"].(string), of["rule"].(string)}, " ")
		if _, twice := byText[text]; !twice {
			byText[text], texts = rule, append(texts, text)
		}
	}
	var list []any
	for _, text := range slices.Sorted(slices.Values(texts)) {
		list = append(list, byText[text])
	}
	return list
}
