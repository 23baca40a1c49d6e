package rest

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
)

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
