package fakegce

import (
	"fmt"
	"strings"
)

// mask is a parsed "fields" parameter: what of an answer the client wants; all of it when empty.
type mask map[string]mask

// parseMask reads a mask such as "nextPageToken,items(name,scheduling/provisioningModel)".
func parseMask(text string) (mask, error) {
	m, rest, err := parseMaskList(text)
	if err == nil && rest != "" {
		err = fmt.Errorf("fields: %q: unexpected %q", text, rest)
	}
	return m, err
}

func parseMaskList(text string) (mask, string, error) {
	list := mask{}
	for {
		end := strings.IndexAny(text, ",()")
		if end < 0 {
			end = len(text)
		}
		path := strings.Split(text[:end], "/")
		text = text[end:]
		at := list
		for i, name := range path {
			if name == "" {
				return nil, "", fmt.Errorf("fields: a name is missing before %q", text)
			}
			if at[name] == nil {
				at[name] = mask{}
			}
			if i < len(path)-1 || strings.HasPrefix(text, "(") {
				at = at[name]
			}
		}
		if strings.HasPrefix(text, "(") {
			sub, rest, err := parseMaskList(text[1:])
			if err != nil {
				return nil, "", err
			}
			if !strings.HasPrefix(rest, ")") {
				return nil, "", fmt.Errorf("fields: a closing parenthesis is missing")
			}
			for name, value := range sub {
				at[name] = value
			}
			text = rest[1:]
		}
		if !strings.HasPrefix(text, ",") {
			return list, text, nil
		}
		text = text[1:]
	}
}

// checkMask says which of the wanted fields an answer cannot have.
func (d *document) checkMask(s *schema, m mask, where string) []string {
	s = d.resolve(s)
	for s != nil && s.Type == "array" {
		s = d.resolve(s.Items)
	}
	if s == nil || s.Additional != nil {
		return nil
	}
	var wrong []string
	for name, sub := range m {
		field := s.Properties[name]
		if field == nil && name != "*" {
			wrong = append(wrong, fmt.Sprintf("fields: %s%s: there is no such field", where, name))
			continue
		}
		wrong = append(wrong, d.checkMask(field, sub, where+name+"/")...)
	}
	return wrong
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
