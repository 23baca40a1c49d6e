package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// expressions replace parts of an object. A template is not YAML, so the object is first written as YAML with a placeholder for
// each expression, and then the placeholders are replaced.
type expressions struct{ texts []string }

// inline returns what to put into a string, or in the place of a whole scalar, to have the expression there.
func (e *expressions) inline(expression string) string {
	e.texts = append(e.texts, expression)
	return fmt.Sprintf("__INLINE_%d__", len(e.texts)-1)
}

// field puts lines of a template into the place of a field of an object; the field's own name must be among them. Every
// line is indented like the field, and "nindent +2" in them means two more than that.
func (e *expressions) field(o object, name, lines string) {
	delete(o, name)
	e.texts = append(e.texts, lines)
	o[fmt.Sprintf("%s__LINES_%d__", name, len(e.texts)-1)] = nil
}

// item is the same for an element of a list.
func (e *expressions) item(lines string) any {
	e.texts = append(e.texts, lines)
	return fmt.Sprintf("__LINES_%d__", len(e.texts)-1)
}

var (
	linesPlaceholder  = regexp.MustCompile(`(?m)^( *)(?:- |[A-Za-z0-9./-]+)__LINES_(\d+)__(?:: null)?$`)
	inlinePlaceholder = regexp.MustCompile(`__INLINE_(\d+)__`)
	relativeIndent    = regexp.MustCompile(`nindent \+(\d+)`)
)

func (e *expressions) render(o object) (string, error) {
	text, err := yaml.Marshal(o)
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
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = indent + line
	}
	return strings.Join(lines, "\n")
}

func (e *expressions) text(number string) string {
	i, _ := strconv.Atoi(number) // the pattern lets only digits pass
	return e.texts[i]
}
