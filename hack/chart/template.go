package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

const (
	// namespace is the one of kustomize, which is replaced by that of the release.
	namespace = "spot-training-operator-system"
	// served is the namespace of what is there once for each namespace that the release serves.
	served = "served"

	// Texts that begin with these are expressions, as kustomization.yaml says.
	expressionPrefix, linesPrefix = "helm: ", "helm:\n"
)

// template returns the template of an object.
func template(o *unstructured.Unstructured) (string, error) {
	e := &expressions{root: "."}
	if o.GetNamespace() == served {
		e.root = "$"
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, "app.kubernetes.io/managed-by")
	labels["app.kubernetes.io/name"] = linesPrefix + `{{- include "spot-training-operator.labels" ` + e.root + ` | nindent +0 }}`
	o.SetLabels(labels)
	nameByRelease(o)
	text, err := e.render(e.replaced(o.Object))
	if o.GetNamespace() == served {
		text = "{{- range $served := .Values.namespaces }}\n" + text + "---\n{{- end }}\n"
	}
	return text, err
}

// perRelease are the names of objects without a namespace that several releases may have, each its own, when each serves some namespaces.
var perRelease = regexp.MustCompile(`^spot-training-operator-(metrics-auth|metrics-reader|namespaced-manager)`)

// nameByRelease gives such an object, and a reference to it, a name of the release.
func nameByRelease(o *unstructured.Unstructured) {
	if o.GetKind() != "ClusterRole" && o.GetKind() != "ClusterRoleBinding" || !perRelease.MatchString(o.GetName()) {
		return
	}
	own := func(name any) string {
		return fmt.Sprintf("%s%s%s", expressionPrefix, name, `{{ include "spot-training-operator.suffix" . }}`)
	}
	if role, ok := o.Object["roleRef"].(object); ok {
		role["name"] = own(role["name"])
	}
	o.SetName(own(o.GetName()))
}

// expressions replace parts of an object. A template is not YAML, so the object is first written as YAML with a placeholder for
// each expression, and then the placeholders are replaced.
type expressions struct {
	texts []string
	// root is how expressions name what the whole template is given.
	root string
}

func (e *expressions) placeholder(kind, text string) string {
	e.texts = append(e.texts, text)
	return fmt.Sprintf("__%s_%d__", kind, len(e.texts)-1)
}

// replaced is a value with placeholders for its expressions, and for kustomize's namespace wherever it occurs.
func (e *expressions) replaced(value any) any {
	switch v := value.(type) {
	case object:
		fields := object{}
		for name, child := range v {
			if lines, ok := linesOf(child); ok {
				fields[name+e.placeholder("LINES", lines)] = nil
			} else {
				fields[name] = e.replaced(child)
			}
		}
		return fields
	case []any:
		for i, child := range v {
			if lines, ok := linesOf(onlyField(child)); ok {
				v[i] = e.placeholder("LINES", lines)
			} else {
				v[i] = e.replaced(child)
			}
		}
	case string:
		if expression, ok := strings.CutPrefix(v, expressionPrefix); ok {
			return e.placeholder("INLINE", expression)
		}
		release := strings.TrimSuffix(e.root, ".") + ".Release.Namespace"
		switch {
		case v == namespace:
			return e.placeholder("INLINE", "{{ "+release+" | quote }}") // 2024 is a namespace, and a number
		case v == served:
			return e.placeholder("INLINE", "{{ $served | quote }}")
		case strings.Contains(v, namespace):
			return strings.ReplaceAll(v, namespace, e.placeholder("INLINE", "{{ "+release+" }}"))
		}
	}
	return value
}

func linesOf(value any) (lines string, ok bool) {
	text, _ := value.(string)
	return strings.CutPrefix(text, linesPrefix)
}

// onlyField is the value of an element that has one field: in some lists kustomize takes objects only.
func onlyField(element any) any {
	if fields, ok := element.(object); ok && len(fields) == 1 {
		for _, only := range fields {
			return only
		}
	}
	return element
}

var (
	linesPlaceholder  = regexp.MustCompile(`(?m)^( *)(?:- |[A-Za-z0-9./-]+)__LINES_(\d+)__(?:: null)?$`)
	inlinePlaceholder = regexp.MustCompile(`__INLINE_(\d+)__`)
	relativeIndent    = regexp.MustCompile(`nindent \+(\d+)`)
)

func (e *expressions) render(value any) (string, error) {
	text, err := yaml.Marshal(value)
	if err != nil {
		return "", err
	}
	// Braces in a description are not a template's.
	rendered := strings.ReplaceAll(string(text), "{{", "{{ `{{` }}")
	rendered = linesPlaceholder.ReplaceAllStringFunc(rendered, func(line string) string {
		found := linesPlaceholder.FindStringSubmatch(line)
		return e.indented(found[2], found[1])
	})
	rendered = inlinePlaceholder.ReplaceAllStringFunc(rendered, func(placeholder string) string {
		return e.text(inlinePlaceholder.FindStringSubmatch(placeholder)[1])
	})
	if strings.Contains(rendered, "__LINES_") {
		return "", fmt.Errorf("a field that a template replaces is the first of a list's element:\n%s", rendered)
	}
	return rendered, nil
}

func (e *expressions) indented(number, indent string) string {
	text := relativeIndent.ReplaceAllStringFunc(e.text(number), func(call string) string {
		more, _ := strconv.Atoi(relativeIndent.FindStringSubmatch(call)[1]) // the pattern lets only digits pass
		return fmt.Sprintf("nindent %d", len(indent)+more)
	})
	return indent + strings.ReplaceAll(text, "\n", "\n"+indent)
}

func (e *expressions) text(number string) string {
	i, _ := strconv.Atoi(number) // the pattern lets only digits pass
	return e.texts[i]
}
