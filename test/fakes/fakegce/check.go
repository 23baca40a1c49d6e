package fakegce

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
)

// checkParameters says what is wrong with the values in the path and the query of a request.
func (d *document) checkParameters(m *method, path map[string]string, query url.Values) []string {
	var wrong []string
	for name, value := range path {
		if s := m.Parameters[name]; s != nil {
			wrong = append(wrong, d.checkText(s, value, "path parameter "+name)...)
		}
	}
	for name, values := range query {
		s := m.Parameters[name]
		if s == nil || s.Location != "query" {
			s = d.Parameters[name]
		}
		if s == nil {
			wrong = append(wrong, "query parameter "+name+": "+m.ID+" has none of that name")
			continue
		}
		if len(values) > 1 && !s.Repeated {
			wrong = append(wrong, "query parameter "+name+": is given more than once")
		}
		for _, value := range values {
			wrong = append(wrong, d.checkText(s, value, "query parameter "+name)...)
		}
	}
	for name, s := range m.Parameters {
		if s.Required && s.Location == "query" && !query.Has(name) {
			wrong = append(wrong, "query parameter "+name+": is required by "+m.ID)
		}
	}
	sort.Strings(wrong)
	return wrong
}

// checkText checks a value that stands in a URL.
func (d *document) checkText(s *schema, value, where string) []string {
	switch s.Type {
	case "boolean":
		if value != "true" && value != "false" {
			return []string{fmt.Sprintf("%s: %q is neither true nor false", where, value)}
		}
	case "integer":
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return []string{fmt.Sprintf("%s: %q is no integer", where, value)}
		}
		if least, err := strconv.ParseInt(s.Minimum, 10, 64); err == nil && number < least {
			return []string{fmt.Sprintf("%s: %d is less than %d", where, number, least)}
		}
		if most, err := strconv.ParseInt(s.Maximum, 10, 64); err == nil && number > most {
			return []string{fmt.Sprintf("%s: %d is more than %d", where, number, most)}
		}
	default:
		return d.checkString(s, value, where)
	}
	return nil
}

func (d *document) checkString(s *schema, value, where string) []string {
	if s.Pattern != "" && !d.matches(s.Pattern, value) {
		return []string{fmt.Sprintf("%s: %q does not match %s", where, value, s.Pattern)}
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		return []string{fmt.Sprintf("%s: %q is none of %v", where, value, s.Enum)}
	}
	return nil
}

// checkBody says what is wrong with a value that was sent as the body, or a part of the body, of a request.
func (d *document) checkBody(m *method, s *schema, value any, where string) []string {
	s = d.resolve(s)
	if s == nil || value == nil {
		return nil
	}
	switch s.Type {
	case "object":
		object, ok := value.(map[string]any)
		if !ok {
			return []string{where + ": is no object"}
		}
		return d.checkObject(m, s, object, where)
	case "array":
		array, ok := value.([]any)
		if !ok {
			return []string{where + ": is no list"}
		}
		var wrong []string
		for i, item := range array {
			wrong = append(wrong, d.checkBody(m, s.Items, item, fmt.Sprintf("%s[%d]", where, i))...)
		}
		return wrong
	case "string":
		text, ok := value.(string)
		if !ok {
			return []string{where + ": is no string"}
		}
		return d.checkFormat(s, text, where)
	case "boolean":
		if _, ok := value.(bool); !ok {
			return []string{where + ": is neither true nor false"}
		}
	case "integer":
		number, ok := value.(json.Number)
		if !ok {
			return []string{where + ": is no number"}
		}
		bits := 32
		if _, err := strconv.ParseInt(number.String(), 10, bits); err != nil {
			return []string{where + ": is no integer of 32 bits"}
		}
	case "number":
		if _, ok := value.(json.Number); !ok {
			return []string{where + ": is no number"}
		}
	}
	return nil
}

func (d *document) checkFormat(s *schema, text, where string) []string {
	var err error
	switch s.Format {
	case "int64":
		_, err = strconv.ParseInt(text, 10, 64)
	case "uint64":
		_, err = strconv.ParseUint(text, 10, 64)
	case "byte":
		_, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil {
		return []string{fmt.Sprintf("%s: %q is no %s", where, text, s.Format)}
	}
	return d.checkString(s, text, where)
}

func (d *document) checkObject(m *method, s *schema, object map[string]any, where string) []string {
	var wrong []string
	for name, value := range object {
		field := s.Properties[name]
		switch {
		case field == nil && s.Additional == nil:
			wrong = append(wrong, where+"."+name+": there is no such field")
		case field == nil:
			wrong = append(wrong, d.checkBody(m, s.Additional, value, where+"."+name)...)
		case field.ReadOnly:
			wrong = append(wrong, where+"."+name+": is for answers only")
		default:
			wrong = append(wrong, d.checkBody(m, field, value, where+"."+name)...)
		}
	}
	for name, field := range s.Properties {
		if _, ok := object[name]; !ok && slices.Contains(field.Annotations.Required, m.ID) {
			wrong = append(wrong, where+"."+name+": is required by "+m.ID)
		}
	}
	sort.Strings(wrong)
	return wrong
}
