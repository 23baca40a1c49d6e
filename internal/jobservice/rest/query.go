package rest

import (
	"net/url"
	"slices"
	"strings"
)

// query are the parameters of a request's URL, and what is wrong with them.
type query struct {
	report
	values url.Values
}

// query reads the parameters. Each of the names may be there once, and no other.
func (c *call) query(names ...string) *query {
	if c.URL.RawQuery == "" {
		return &query{}
	}
	values, err := url.ParseQuery(c.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.add("", "the query cannot be read: write its special characters as %%XX")
		return q
	}
	for _, name := range sortedKeys(values) {
		switch {
		case !slices.Contains(names, name) && len(names) == 0:
			q.add(shorten(name), "is not known: remove it, there are no parameters here")
		case !slices.Contains(names, name):
			q.add(shorten(name), "is not known: remove it, or correct its name; known are %s", strings.Join(names, ", "))
		case len(values[name]) > 1:
			q.add(name, "is there %d times: give it once", len(values[name]))
		}
	}
	return q
}

func sortedKeys(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (q *query) get(name string) (string, bool) {
	values := q.values[name]
	if len(values) != 1 {
		return "", false
	}
	return values[0], true
}

func (q *query) oneOf(name string, known []string) string {
	text, ok := q.get(name)
	if !ok {
		return ""
	}
	if !slices.Contains(known, text) {
		q.add(name, "is %q, but must be one of %s", shorten(text), strings.Join(known, ", "))
	}
	return text
}

func (q *query) integer(name string, otherwise, least, most int64) int {
	text, ok := q.get(name)
	if !ok {
		return int(otherwise)
	}
	if n, ok := decimal(text); ok && n >= least && n <= most {
		return int(n)
	}
	q.add(name, "is %q, but must be a whole number from %d to %d", shorten(text), least, most)
	return 0
}

// decimal reads digits, with a sign perhaps.
func decimal(text string) (int64, bool) {
	if text == "" || len(text) > 18 || strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") != "" || text == "-" {
		return 0, false
	}
	return integer([]byte(text))
}

func (q *query) boolean(name string, otherwise bool) bool {
	text, ok := q.get(name)
	if !ok {
		return otherwise
	}
	switch text {
	case "true", "false":
		return text == "true"
	}
	q.add(name, "is %q, but must be true or false", shorten(text))
	return false
}

func (q *query) label(name string) string {
	text, ok := q.get(name)
	if ok {
		q.isLabel(name, text)
	}
	return text
}
