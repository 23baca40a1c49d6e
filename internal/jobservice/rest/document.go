package rest

import (
	"bytes"
	_ "embed" // openapi.yaml and docs.html
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed openapi.yaml
var openAPISource []byte

//go:embed docs.html
var docsSource string

// openAPIDocument is openapi.yaml as JSON. The file is part of the program and tested, so that reading it does not fail.
var openAPIDocument = sync.OnceValues(func() ([]byte, error) { return yaml.YAMLToJSON(openAPISource) })

func (s *service) openAPI(c *call) error {
	text, err := openAPIDocument()
	if err != nil {
		return err
	}
	c.w.Header()["Cache-Control"] = []string{"public, max-age=300"}
	c.answer(http.StatusOK, text)
	return nil
}

func (s *service) docs(c *call) error {
	page, err := docsPage()
	if err != nil {
		return err
	}
	header := c.w.Header()
	header["Content-Type"] = []string{"text/html; charset=utf-8"}
	header["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
	header["Content-Length"] = []string{strconv.Itoa(len(page))}
	c.status = http.StatusOK
	c.w.WriteHeader(c.status)
	_, _ = c.w.Write(page) // A client that has gone needs no page.
	return nil
}

// document is what the page shows of the OpenAPI document.
type document struct {
	Info struct {
		Title, Version, Description string
	}
	Paths      map[string]pathItem
	Components struct {
		Schemas    map[string]schema
		Parameters map[string]parameter
		Responses  map[string]reference
	}
}

type pathItem struct {
	Parameters        []parameter
	Get, Post, Delete *operation
}

// Operations by method, each with the parameters of the path.
func (p pathItem) Operations() map[string]operation {
	operations := map[string]operation{}
	for method, o := range map[string]*operation{"delete": p.Delete, "get": p.Get, "post": p.Post} {
		if o != nil {
			whole := *o
			whole.Parameters = slices.Concat(p.Parameters, o.Parameters)
			operations[method] = whole
		}
	}
	return operations
}

type operation struct {
	OperationID          string
	Summary, Description string
	Tags                 []string
	Security             []map[string][]string
	Parameters           []parameter
	RequestBody          struct {
		Content map[string]struct {
			Schema  schema
			Example any
		}
	}
	Responses map[string]reference
}

type parameter struct {
	Ref         string `json:"$ref"`
	Name, In    string
	Description string
	Required    bool
	Schema      schema
}

type reference struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]struct{ Schema schema }
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Format      string
	Nullable    bool
	Enum        []any
	Default     any
	Minimum     *float64
	Maximum     *float64
	Properties  map[string]schema
	Required    []string
	Items       *schema
	OneOf       []schema
}

var docsPage = sync.OnceValues(func() ([]byte, error) {
	text, err := openAPIDocument()
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	page, err := template.New("docs").Funcs(template.FuncMap{
		"last":     func(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] },
		"upper":    strings.ToUpper,
		"kind":     schema.kind,
		"required": func(s schema, name string) bool { return slices.Contains(s.Required, name) },
		"json": func(value any) (string, error) {
			text, err := json.MarshalIndent(value, "", "  ")
			return string(text), err
		},
		"parameter": func(p parameter) parameter {
			if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
				return doc.Components.Parameters[name]
			}
			return p
		},
		"response": func(r reference) reference {
			if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
				return doc.Components.Responses[name]
			}
			return r
		},
	}).Parse(docsSource)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, doc)
	return out.Bytes(), err
})

// kind of a schema in a few words.
func (s schema) kind() string {
	if s.Ref != "" {
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	}
	var words []string
	switch kinds := s.Type.(type) {
	case string:
		words = append(words, kinds)
	case []any:
		for _, kind := range kinds {
			text, _ := kind.(string) // The schema of schemas has texts there.
			words = append(words, text)
		}
	}
	text := strings.Join(words, " or ")
	if s.Items != nil {
		text += " of " + s.Items.kind()
	}
	for i, part := range s.OneOf {
		if i > 0 {
			text += " or "
		}
		text += part.kind()
	}
	if len(s.Enum) > 0 {
		values, _ := json.Marshal(s.Enum) // It came from JSON.
		text += " " + string(values)
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		text += " " + number(*s.Minimum) + " to " + number(*s.Maximum)
	case s.Minimum != nil:
		text += " from " + number(*s.Minimum)
	}
	if s.Format != "" {
		text += " (" + s.Format + ")"
	}
	if s.Nullable {
		text += " or null"
	}
	if s.Default != nil {
		value, _ := json.Marshal(s.Default) // It came from JSON.
		text += ", default " + string(value)
	}
	return text
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
