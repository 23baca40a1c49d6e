package fakegce

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/api/discovery/v1"
)

// checker gathers what is wrong with a request for a method.
type checker struct {
	*document

	method *discovery.RestMethod
	wrong  []string
}

func (c *checker) add(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// parameters checks the values in the path and the query of a request.
func (c *checker) parameters(r *http.Request) {
	query := r.URL.Query()
	for name, s := range c.method.Parameters {
		if s.Location == "path" {
			c.value(&s, parameter(&s, r.PathValue(name)), "path parameter "+name)
		} else if s.Required && !query.Has(name) {
			c.add("query parameter %s: is required by %s", name, c.method.Id)
		}
	}
	for name, values := range query {
		s, ok := c.method.Parameters[name]
		if !ok || s.Location != "query" {
			s, ok = c.Parameters[name]
		}
		if !ok {
			c.add("query parameter %s: %s has none of that name", name, c.method.Id)
			continue
		}
		if len(values) > 1 && !s.Repeated {
			c.add("query parameter %s: is given more than once", name)
		}
		for _, value := range values {
			c.value(&s, parameter(&s, value), "query parameter "+name)
		}
	}
}

// parameter is a value that stands in a URL, in the form that it has in JSON.
func parameter(s *discovery.JsonSchema, text string) any {
	if s.Type == "string" {
		return text
	}
	if value, err := parse([]byte(text)); err == nil {
		return value
	}
	return text
}

// value checks a value, and those in it, against the schema.
func (c *checker) value(s *discovery.JsonSchema, value any, where string) {
	s = c.resolve(s)
	if s == nil || value == nil {
		return
	}
	ok := true
	switch s.Type {
	case "object":
		var object map[string]any
		if object, ok = value.(map[string]any); ok {
			c.object(s, object, where)
		}
	case "array":
		var items []any
		items, ok = value.([]any)
		for i, item := range items {
			c.value(s.Items, item, fmt.Sprintf("%s[%d]", where, i))
		}
	case "string":
		var text string
		if text, ok = value.(string); ok {
			c.text(s, text, where)
		}
	case "boolean":
		_, ok = value.(bool)
	case "integer":
		var number json.Number
		number, _ = value.(json.Number)
		parsed, err := strconv.ParseInt(string(number), 10, 32)
		ok = err == nil
		if least, err := strconv.ParseInt(s.Minimum, 10, 64); ok && err == nil && parsed < least {
			c.add("%s: %d is less than %d", where, parsed, least)
		}
		if most, err := strconv.ParseInt(s.Maximum, 10, 64); ok && err == nil && parsed > most {
			c.add("%s: %d is more than %d", where, parsed, most)
		}
	case "number":
		_, ok = value.(json.Number)
	}
	if !ok {
		c.add("%s: is no %s", where, s.Type)
	}
}

func (c *checker) text(s *discovery.JsonSchema, text, where string) {
	var err error
	switch s.Format {
	case "int64":
		_, err = strconv.ParseInt(text, 10, 64)
	case "uint64":
		_, err = strconv.ParseUint(text, 10, 64)
	case "byte":
		_, err = base64.StdEncoding.DecodeString(text)
	}
	switch {
	case err != nil:
		c.add("%s: %q is no %s", where, text, s.Format)
	case s.Pattern != "" && !whole(s.Pattern).MatchString(text):
		c.add("%s: %q does not match %s", where, text, s.Pattern)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		c.add("%s: %q is none of %v", where, text, s.Enum)
	}
}

// patterns are the compiled patterns of the discovery document, by their text.
var patterns sync.Map

// whole compiles a pattern that the whole of a text must match.
func whole(pattern string) *regexp.Regexp {
	if known, ok := patterns.Load(pattern); ok {
		return known.(*regexp.Regexp)
	}
	compiled, _ := patterns.LoadOrStore(pattern, regexp.MustCompile("^(?:"+pattern+")$"))
	return compiled.(*regexp.Regexp)
}

func (c *checker) object(s *discovery.JsonSchema, object map[string]any, where string) {
	for name, value := range object {
		field, ok := s.Properties[name]
		switch {
		case !ok && s.AdditionalProperties == nil:
			c.add("%s.%s: there is no such field", where, name)
		case !ok:
			c.value(s.AdditionalProperties, value, where+"."+name)
		case field.ReadOnly:
			c.add("%s.%s: is for answers only", where, name)
		default:
			c.value(&field, value, where+"."+name)
		}
	}
	for name, field := range s.Properties {
		if _, ok := object[name]; !ok && field.Annotations != nil && slices.Contains(field.Annotations.Required, c.method.Id) {
			c.add("%s.%s: is required by %s", where, name, c.method.Id)
		}
	}
}
