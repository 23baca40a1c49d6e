package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxDetails of one answer.
const maxDetails = 100

// report gathers what is wrong with the fields of a request.
type report struct {
	details []detail
	// prefix of the names of fields, for example jobs[3].
	prefix string
}

func (r *report) add(field, format string, arguments ...any) {
	if len(r.details) < maxDetails {
		r.details = append(r.details, detail{r.prefix + field, fmt.Sprintf(format, arguments...)})
	}
}

// problem is nil when nothing was wrong.
func (r *report) problem(what string) error {
	if len(r.details) == 0 {
		return nil
	}
	fields := "1 field is"
	if n := len(r.details); n > 1 {
		fields = fmt.Sprintf("%d fields are", n)
	}
	return invalid(what+": "+fields+" wrong, see details", r.details...)
}

func asSyntax(err error, target **json.SyntaxError) bool { return errors.As(err, target) }

// object walks the members of an object. Each of the names may be there once, and no other.
func (r *report) object(path string, value []byte, names []string, member func(name string, value []byte)) {
	var seen uint64
	members(value, func(key, value []byte) {
		for i, name := range names {
			if string(key) != name {
				continue
			}
			if seen&(1<<i) != 0 {
				r.add(path+name, "is there twice: remove one")
				return
			}
			seen |= 1 << i
			if !isNull(value) {
				member(name, value)
			}
			return
		}
		r.add(path+shorten(string(key)), "is not known: remove it, or correct its name; known are %s", strings.Join(names, ", "))
	})
}

// shorten bounds how much of a client's text an answer repeats.
func shorten(text string) string {
	const longest = 64
	if len(text) <= longest {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

func (r *report) wrongKind(field string, value []byte, want string) {
	r.add(field, "is %s, but must be %s", kind(value), want)
}

func (r *report) text(field string, value []byte, into *string) bool {
	if value[0] != '"' {
		r.wrongKind(field, value, "a text")
		return false
	}
	*into = unquote(value)
	return true
}

func (r *report) boolean(field string, value []byte, into *bool) {
	if value[0] != 't' && value[0] != 'f' {
		r.wrongKind(field, value, "true or false")
		return
	}
	*into = value[0] == 't'
}

func (r *report) integer(field string, value []byte, least, most int64, into *int64) bool {
	if kind(value) != "a number" {
		r.wrongKind(field, value, "a whole number")
		return false
	}
	n, ok := integer(value)
	if !ok {
		r.add(field, "is %s, but must be a whole number from %d to %d", shorten(string(value)), least, most)
		return false
	}
	if n < least || n > most {
		r.add(field, "is %d, but must be from %d to %d: choose a number in that range", n, least, most)
		return false
	}
	*into = n
	return true
}

// oneOf reads a text that must be one of a few.
func (r *report) oneOf(field string, value []byte, known []string) string {
	var text string
	if !r.text(field, value, &text) {
		return ""
	}
	for _, k := range known {
		if k == text {
			return k
		}
	}
	r.add(field, "is %q, but must be one of %s", shorten(text), strings.Join(known, ", "))
	return ""
}

// label reads the name of a namespace or a queue.
func (r *report) label(field string, value []byte, into *string) {
	var text string
	if r.text(field, value, &text) && r.isLabel(field, text) {
		*into = text
	}
}

const maxLabel = 63

func (r *report) isLabel(field, text string) bool {
	if isLabel(text) {
		return true
	}
	r.add(field, "is %q, but must be a name of 1 to %d characters a-z, 0-9 and '-', with a letter or digit at both ends", shorten(text), maxLabel)
	return false
}

func isLabel(text string) bool {
	if text == "" || len(text) > maxLabel || text[0] == '-' || text[len(text)-1] == '-' {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// json reads an object that the service keeps as it is, without blanks.
func (r *report) json(field string, value []byte, most int, into *json.RawMessage) {
	if value[0] != '{' {
		r.wrongKind(field, value, "an object")
		return
	}
	if problem := storable(value); problem != "" {
		r.add(field, "%s", problem)
		return
	}
	var compact bytes.Buffer
	compact.Grow(len(value))
	_ = json.Compact(&compact, value) // It is known to be valid.
	if compact.Len() > most {
		r.add(field, "has %d bytes, but may have at most %d: keep what is large elsewhere and refer to it", compact.Len(), most)
		return
	}
	*into = compact.Bytes()
}

// The same as of an AIJob's gang.topology.
var labelKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
