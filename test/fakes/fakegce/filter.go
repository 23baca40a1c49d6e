package fakegce

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// filter decides whether a resource, in the form of its JSON, is in a list.
type filter func(resource map[string]any) bool

var filterTokens = regexp.MustCompile(`\s*("(?:[^"\\]|\\.)*"|'[^']*'|[()]|!=|<=|>=|[=<>:]|[^\s()=<>:!"']+)`)

// parseFilter reads expressions such as `(labels.a = "b") AND (status = RUNNING)`; a field that the resource's schema
// does not have is an error, since such a filter would never find anything.
func (d *document) parseFilter(s *schema, text string) (filter, error) {
	if strings.TrimSpace(text) == "" {
		return func(map[string]any) bool { return true }, nil
	}
	p := &filterParser{doc: d, schema: s}
	rest := strings.TrimSpace(text)
	for rest != "" {
		at := filterTokens.FindStringSubmatchIndex(rest)
		if len(at) < 4 || at[0] != 0 {
			return nil, fmt.Errorf("filter %q: cannot read %q", text, rest)
		}
		p.tokens = append(p.tokens, rest[at[2]:at[3]])
		rest = strings.TrimSpace(rest[at[1]:])
	}
	f, err := p.or()
	if err == nil && len(p.tokens) > 0 {
		err = fmt.Errorf("unexpected %q", p.tokens[0])
	}
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	return f, nil
}

type filterParser struct {
	doc    *document
	schema *schema
	tokens []string
}

func (p *filterParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *filterParser) next() string {
	token := p.peek()
	if token != "" {
		p.tokens = p.tokens[1:]
	}
	return token
}

func (p *filterParser) or() (filter, error) {
	left, err := p.and()
	for err == nil && p.peek() == "OR" {
		p.next()
		var right filter
		before := left
		right, err = p.and()
		left = func(r map[string]any) bool { return before(r) || right(r) }
	}
	return left, err
}

func (p *filterParser) and() (filter, error) {
	left, err := p.term()
	for err == nil && p.peek() != "" && p.peek() != ")" && p.peek() != "OR" {
		if p.peek() == "AND" {
			p.next()
		}
		var right filter
		before := left
		right, err = p.term()
		left = func(r map[string]any) bool { return before(r) && right(r) }
	}
	return left, err
}

func (p *filterParser) term() (filter, error) {
	if p.peek() != "(" {
		return p.comparison()
	}
	p.next()
	f, err := p.or()
	if err == nil && p.next() != ")" {
		err = fmt.Errorf("a closing parenthesis is missing")
	}
	return f, err
}

func (p *filterParser) comparison() (filter, error) {
	field, operator, value := p.next(), p.next(), p.next()
	if value == "" {
		return nil, fmt.Errorf("%s %s: a value is missing", field, operator)
	}
	if err := p.known(field); err != nil {
		return nil, err
	}
	value = unquote(value)
	path := strings.Split(field, ".")
	switch operator {
	case "=", "!=", "<", "<=", ">", ">=", ":":
		return func(r map[string]any) bool { return compare(lookup(r, path), operator, value) }, nil
	case "eq", "ne":
		pattern, err := regexp.Compile("^(?:" + value + ")$")
		if err != nil {
			return nil, err
		}
		return func(r map[string]any) bool {
			text, ok := lookup(r, path).(string)
			return (ok && pattern.MatchString(text)) == (operator == "eq")
		}, nil
	}
	return nil, fmt.Errorf("%q is no operator", operator)
}

func (p *filterParser) known(field string) error {
	s := p.schema
	for _, name := range strings.Split(field, ".") {
		s = p.doc.resolve(s)
		for s != nil && s.Type == "array" {
			s = p.doc.resolve(s.Items)
		}
		if s == nil {
			return fmt.Errorf("there is no field %s", field)
		}
		if s.Properties[name] == nil && s.Additional == nil {
			return fmt.Errorf("there is no field %s", field)
		}
		if s.Properties[name] != nil {
			s = s.Properties[name]
		} else {
			s = s.Additional
		}
	}
	return nil
}

func unquote(value string) string {
	if len(value) >= 2 && value[0] == '\'' {
		return value[1 : len(value)-1]
	}
	if len(value) >= 2 && value[0] == '"' {
		if text, err := strconv.Unquote(value); err == nil {
			return text
		}
	}
	return value
}

func lookup(value any, path []string) any {
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

func compare(have any, operator, want string) bool {
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
	case "<":
		return have != nil && text < want
	case "<=":
		return have != nil && text <= want
	case ">":
		return text > want
	default:
		return text >= want
	}
}
