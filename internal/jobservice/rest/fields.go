package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxDetails of one answer.
const maxDetails = 100

// reader reads a JSON value, which is valid and not null, and says what is wrong with it.
type reader func(value []byte) []detail

// field of an object, or parameter of a query.
type field struct {
	name string
	read reader
	// missing says what to do about a field that must be there, and is not; empty: it may be left out.
	missing string
}

func optional(name string, read reader) field { return field{name: name, read: read} }

func required(name, missing string, read reader) field { return field{name, read, missing} }

// detail says what is wrong with a field.
type detail struct{ field, message string }

func wrong(format string, arguments ...any) []detail {
	return []detail{{message: fmt.Sprintf(format, arguments...)}}
}

func wrongKind(value []byte, want string) []detail {
	return wrong("is %s, but must be %s", kind(value), want)
}

// under are details of what is in a field, or in an element of a list.
func under(name string, inside []detail) []detail {
	for i, d := range inside {
		switch {
		case d.field == "":
			inside[i].field = name
		case d.field[0] == '[':
			inside[i].field = name + d.field
		default:
			inside[i].field = name + "." + d.field
		}
	}
	return inside
}

// problemWith a request is the error that has the details; nil: there are none.
func problemWith(what string, details []detail) error {
	switch n := len(details); n {
	case 0:
		return nil
	case 1:
		return invalid(what+": 1 field is wrong, see details", details...)
	default:
		return invalid(fmt.Sprintf("%s: %d fields are wrong, see details", what, min(n, maxDetails)), details[:min(n, maxDetails)]...)
	}
}

// readFields reads an object. Each of the fields may be there once, and no other. It keeps nothing of the fields, not even their names, so
// that those of a request need no memory but the stack.
func readFields(object []byte, fields ...field) (details []detail) {
	if object[0] != '{' {
		return wrongKind(object, "an object with "+names(fields))
	}
	var seen, given uint64
	for name, value := range partsOf(object) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == string(name) })
		switch {
		case len(details) >= maxDetails:
			return details
		case i < 0:
			details = append(details, unknown(string(name), fields))
			continue
		case seen&(1<<i) != 0:
			details = append(details, detail{string(name), "is there twice: remove one"})
		case value[0] != 'n':
			given |= 1 << i
			if wrong := fields[i].read(value); wrong != nil {
				details = append(details, under(string(name), wrong)...)
			}
		}
		seen |= 1 << i
	}
	for i, f := range fields {
		if f.missing != "" && given&(1<<i) == 0 {
			details = append(details, detail{strings.Clone(f.name), "is missing: " + f.missing})
		}
	}
	return details
}

func unknown(name string, fields []field) detail {
	remedy := "there are no parameters here"
	if len(fields) > 0 {
		remedy = "or correct its name; known are " + names(fields)
	}
	return detail{cmp.Or(shorten(name), `""`), "is not known: remove it, " + remedy}
}

func names(fields []field) string {
	var all strings.Builder
	for i, f := range fields {
		if i > 0 {
			all.WriteString(", ")
		}
		all.WriteString(f.name)
	}
	return all.String()
}

// shorten bounds how much of a client's text an answer repeats.
func shorten(text string) string {
	const longest = 64
	if len(text) <= longest {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// readList calls read for each element of a list until too much is wrong.
func readList(value []byte, of string, read func(i int, element []byte) []detail) (details []detail) {
	if value[0] != '[' {
		return wrongKind(value, "a list of "+of)
	}
	i := 0
	for _, element := range partsOf(value) {
		if wrong := read(i, element); wrong != nil {
			details = append(details, under("["+strconv.Itoa(i)+"]", wrong)...)
		}
		if i++; len(details) >= maxDetails {
			break
		}
	}
	return details
}

// asText reads a text with which check finds nothing wrong; nil: any.
func asText(into *string, check func(text string) []detail) reader {
	return func(value []byte) []detail {
		if value[0] != '"' {
			return wrongKind(value, "a text")
		}
		given := unquote(value)
		if check != nil {
			if details := check(given); details != nil {
				return details
			}
		}
		*into = given
		return nil
	}
}

// oneOf checks that a text is one of a few.
func oneOf(known []string) func(string) []detail {
	return func(text string) []detail {
		if slices.Contains(known, text) {
			return nil
		}
		return wrong("is %q, but must be one of %s", shorten(text), strings.Join(known, ", "))
	}
}

func isLabel(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }

// label checks the name of a namespace or a queue.
func label(text string) []detail {
	if isLabel(text) {
		return nil
	}
	return wrong("is %q, but must be a name of 1 to %d characters a-z, 0-9 and '-', with a letter or digit at both ends",
		shorten(text), validation.DNS1123LabelMaxLength)
}

// isVisible says that a text has only visible characters of ASCII.
func isVisible(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// The same as of an AIJob's gang.topology.
var labelKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

func asBoolean(into *bool) reader {
	return func(value []byte) []detail {
		if value[0] != 't' && value[0] != 'f' {
			return wrongKind(value, "true or false")
		}
		*into = value[0] == 't'
		return nil
	}
}

func asInteger(least, most int, into *int) reader {
	return func(value []byte) []detail {
		if kind(value) != "a number" {
			return wrongKind(value, fmt.Sprintf("a whole number from %d to %d", least, most))
		}
		n, ok := whole(value)
		switch {
		case !ok:
			return wrong("is %s, but must be a whole number from %d to %d", shorten(string(value)), least, most)
		case n < least || n > most:
			return wrong("is %d, but must be from %d to %d: choose a number in that range", n, least, most)
		}
		*into = n
		return nil
	}
}

// asKept reads an object that the service keeps as it is, without blanks.
func asKept(most int, into *json.RawMessage) reader {
	return func(value []byte) []detail {
		if value[0] != '{' {
			return wrongKind(value, "an object")
		}
		if problem := unstorable(value); problem != "" {
			return wrong("%s", problem)
		}
		var compact bytes.Buffer
		compact.Grow(len(value))
		_ = json.Compact(&compact, value) // It is known to be valid.
		if compact.Len() > most {
			return wrong("has %d bytes, but may have at most %d: keep what is large elsewhere and refer to it", compact.Len(), most)
		}
		*into = compact.Bytes()
		return nil
	}
}

// query reads the parameters of the request's URL. Each of them may be there once, and no other.
func (c *call) query(parameters ...field) error {
	const what = "the query is wrong"
	if c.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return problemWith(what, wrong("the query cannot be read: write its special characters as %%XX"))
	}
	var details []detail
	for _, p := range parameters {
		switch given := values[p.name]; len(given) {
		case 0:
		case 1:
			quoted, _ := json.Marshal(given[0]) // A text can always be written.
			details = append(details, under(p.name, p.read(quoted))...)
		default:
			details = append(details, under(p.name, wrong("is there %d times: give it once", len(given)))...)
		}
		delete(values, p.name)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		details = append(details, unknown(name, parameters))
	}
	return problemWith(what, details)
}

var bare = regexp.MustCompile(`^"(-?[0-9]{1,18}|true|false)"$`)

// unquoted reads a number or a boolean of a query, whose parameters are texts.
func unquoted(read reader) reader {
	return func(value []byte) []detail {
		if bare.Match(value) {
			value = value[1 : len(value)-1]
		}
		return read(value)
	}
}
