package fakegce

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/discovery/v1"
)

var filterTokens = regexp.MustCompile(`\s*("(?:[^"\\]|\\.)*"|'[^']*'|[()]|!=|[=:]|[^\s()=:!"']+)\s*|.`)

// filter says which resources are in a list, by an expression such as `(labels.a = "b") AND (status = RUNNING)`. It is
// evaluated as it is read.
type filter struct {
	tokens []string
	// at is the next token, resource what the expression is evaluated for, in the form of its JSON.
	at       int
	resource map[string]any
	// err is the first error.
	err error
	// has says whether resources may have a field.
	has func(path []string) bool
}

// parseFilter reads an expression. A field that the resource's schema does not have is an error, since such a filter would
// never find anything.
func (d *document) parseFilter(s discovery.JsonSchema, text string) (*filter, error) {
	f := &filter{has: func(path []string) bool { return d.has(s, path) }}
	for _, found := range filterTokens.FindAllStringSubmatch(strings.TrimSpace(text), -1) {
		if found[1] == "" {
			return nil, fmt.Errorf("filter %q: cannot read %q", text, found[0])
		}
		f.tokens = append(f.tokens, found[1])
	}
	f.tokens = append(f.tokens, "")
	// An error does not depend on the resource: the expression is checked with none, once.
	f.keeps(nil)
	f.has = func([]string) bool { return true }
	if f.err == nil && f.peek() != "" {
		f.fail("unexpected %q", f.peek())
	}
	if f.err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, f.err)
	}
	return f, nil
}

// keeps says whether a resource is in the list.
func (f *filter) keeps(resource map[string]any) bool {
	f.at, f.resource = 0, resource
	return f.peek() == "" || f.or()
}

func (f *filter) fail(format string, args ...any) bool {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
	f.at = len(f.tokens) - 1
	return false
}

// peek returns the next token; empty at the end.
func (f *filter) peek() string { return f.tokens[f.at] }

func (f *filter) next() string {
	token := f.peek()
	if token != "" {
		f.at++
	}
	return token
}

// skip the next token if it is this one.
func (f *filter) skip(token string) bool {
	if f.peek() != token {
		return false
	}
	f.at++
	return true
}

func (f *filter) or() bool {
	is := f.and()
	for f.skip("OR") {
		is = f.and() || is
	}
	return is
}

func (f *filter) and() bool {
	is := f.term()
	for !slices.Contains([]string{"", ")", "OR"}, f.peek()) {
		f.skip("AND")
		is = f.term() && is
	}
	return is
}

func (f *filter) term() bool {
	if !f.skip("(") {
		return f.comparison()
	}
	is := f.or()
	if !f.skip(")") {
		return f.fail("a closing parenthesis is missing")
	}
	return is
}

func (f *filter) comparison() bool {
	field, operator, value := f.next(), f.next(), f.next()
	path := strings.Split(field, ".")
	if value == "" {
		return f.fail("%s %s: a value is missing", field, operator)
	}
	if !f.has(path) {
		return f.fail("there is no field %s", field)
	}
	want := unquote(value)
	var have any = f.resource
	for _, name := range path {
		object, _ := have.(map[string]any)
		have = object[name]
	}
	text := ""
	if have != nil {
		text = fmt.Sprint(have)
	}
	switch operator {
	case ":":
		return have != nil && (want == "*" || strings.Contains(strings.ToLower(text), strings.ToLower(want)))
	case "=":
		return have != nil && text == want
	case "!=":
		return text != want
	case "eq", "ne":
		pattern, err := regexp.Compile("^(?:" + want + ")$")
		if err != nil {
			return f.fail("%w", err)
		}
		return (have != nil && pattern.MatchString(text)) == (operator == "eq")
	}
	return f.fail("%q is no operator", operator)
}

func unquote(value string) string {
	if len(value) >= 2 && value[0] == '\'' {
		return value[1 : len(value)-1]
	}
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return value
}
