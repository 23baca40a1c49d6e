package fakegce

import (
	"fmt"
	"slices"
	"strings"
)

// mask is a parsed "fields" parameter: what of an answer the client wants; all of it when empty.
type mask map[string]mask

// parseMask reads a mask such as "nextPageToken,items(name,scheduling/provisioningModel)".
func parseMask(text string) (mask, error) {
	paths, err := maskPaths(text)
	m := mask{}
	for _, path := range paths {
		at := m
		for name := range strings.SplitSeq(path, "/") {
			if at[name] == nil {
				at[name] = mask{}
			}
			at = at[name]
		}
	}
	return m, err
}

// maskPaths are the paths in a mask, without parentheses.
func maskPaths(text string) (paths []string, err error) {
	depth, begin := 0, 0
	for end, r := range text + "," {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			name, list, isList := strings.Cut(text[begin:end], "(")
			begin = end + 1
			if !isList {
				paths = append(paths, name)
				continue
			}
			below, err := maskPaths(strings.TrimSuffix(list, ")"))
			if err != nil {
				return nil, err
			}
			for _, path := range below {
				paths = append(paths, name+"/"+path)
			}
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("fields: %q: a parenthesis has no counterpart", text)
	}
	return paths, nil
}

// mask says which of the wanted fields an answer cannot have.
func (c *checker) mask(m mask, before ...string) {
	for name, sub := range m {
		path := slices.Concat(before, []string{name})
		if !c.has(c.Schemas[c.method.Response.Ref], path) {
			c.add("fields: %s: there is no such field", strings.Join(path, "/"))
			continue
		}
		c.mask(sub, path...)
	}
}

// apply leaves of a value what the mask wants.
func (m mask) apply(value any) any {
	if len(m) == 0 || m["*"] != nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, sub := range m {
			if field, ok := v[name]; ok {
				kept[name] = sub.apply(field)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i := range v {
			kept[i] = m.apply(v[i])
		}
		return kept
	}
	return value
}
