package rest

import (
	"bytes"
	_ "embed" // openapi.yaml and the head of the page
	"encoding/json"
	"fmt"
	"html"
	"iter"
	"maps"
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
var docsHead string

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

// docsPage is the document as HTML. html/template would do, but links all methods of all types into the program, which doubles its size.
var docsPage = sync.OnceValues(func() ([]byte, error) {
	text, err := openAPIDocument()
	if err != nil {
		return nil, err
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	p := &page{document: doc}
	p.add(docsHead, doc.Info.Title)
	p.add("<h1>%s %s</h1>\n<p>%s</p>\n", doc.Info.Title, doc.Info.Version, doc.Info.Description)
	p.add("<p>The same for programs: <a href=\"openapi.json\">openapi.json</a></p>\n<ul>\n")
	p.operations(func(name string, o *operation) {
		p.add("<li><a href=\"#%s\"><code>%s</code></a> %s</li>\n", o.OperationID, name, o.Summary)
	})
	p.add("</ul>\n")
	p.operations(p.operation)
	p.add("<h2>Objects</h2>\n")
	for name, s := range sorted(doc.Components.Schemas) {
		p.object(name, &s)
	}
	p.add("</body>\n</html>\n")
	return p.Bytes(), nil
})

// page is the HTML page of a document.
type page struct {
	bytes.Buffer
	document document
}

// markup is not escaped.
type markup string

// add HTML with arguments, which are escaped.
func (p *page) add(format string, arguments ...any) {
	for i, argument := range arguments {
		if _, isMarkup := argument.(markup); !isMarkup {
			arguments[i] = html.EscapeString(fmt.Sprint(argument))
		}
	}
	fmt.Fprintf(p, format, arguments...)
}

func sorted[V any](values map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if !yield(key, values[key]) {
				return
			}
		}
	}
}

// operations calls f for each operation, named by its method and path.
func (p *page) operations(f func(name string, o *operation)) {
	for path, item := range sorted(p.document.Paths) {
		for method, o := range sorted(item.Operations()) {
			f(strings.ToUpper(method)+" "+path, &o)
		}
	}
}

func (p *page) operation(name string, o *operation) {
	p.add("<h2 id=\"%s\"><code>%s</code></h2>\n<p>%s. %s</p>\n", o.OperationID, name, o.Summary, o.Description)
	for _, requirement := range o.Security {
		for _, scope := range requirement["bearer"] {
			p.add("<p>Scope: <code>%s</code></p>\n", scope)
		}
	}
	if len(o.Security) == 0 {
		p.add("<p>Needs no token.</p>\n")
	}
	if len(o.Parameters) > 0 {
		p.add("<h3>Parameters</h3>\n<table><tr><th>Name</th><th>In</th><th>Type</th><th>Meaning</th></tr>\n")
		for _, parameter := range o.Parameters {
			if parameter.Ref != "" {
				parameter = p.document.Components.Parameters[last(parameter.Ref)]
			}
			p.add("<tr><td><code>%s</code></td><td>%s</td><td>%s</td><td>%s</td></tr>\n", parameter.Name, parameter.In, parameter.Schema.kind(), parameter.Description)
		}
		p.add("</table>\n")
	}
	for kind, body := range sorted(o.RequestBody.Content) {
		p.add("<h3>Body</h3>\n<p><code>%s</code>: %s</p>\n", kind, body.Schema.link())
		if body.Example != nil {
			example, _ := json.MarshalIndent(body.Example, "", "  ") // It came from JSON.
			p.add("<pre>%s</pre>\n", string(example))
		}
	}
	p.add("<h3>Answers</h3>\n<table><tr><th>Status</th><th>Meaning</th><th>Body</th></tr>\n")
	for status, response := range sorted(o.Responses) {
		if response.Ref != "" {
			response = p.document.Components.Responses[last(response.Ref)]
		}
		p.add("<tr><td>%s</td><td>%s</td><td>", status, response.Description)
		for kind, content := range sorted(response.Content) {
			p.add("<code>%s</code>", kind)
			if content.Schema.Ref != "" {
				p.add(" %s", content.Schema.link())
			}
		}
		p.add("</td></tr>\n")
	}
	p.add("</table>\n")
}

func (p *page) object(name string, s *schema) {
	p.add("<h3 id=\"schema-%s\">%s</h3>\n<p>%s</p>\n", name, name, s.Description)
	if len(s.Properties) == 0 {
		p.add("<p>%s</p>\n", s.kind())
		return
	}
	p.add("<table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>\n")
	for field, property := range sorted(s.Properties) {
		always := ""
		if slices.Contains(s.Required, field) {
			always = " (always)"
		}
		p.add("<tr><td><code>%s</code>%s</td><td>%s</td><td>%s</td></tr>\n", field, always, property.link(), property.Description)
	}
	p.add("</table>\n")
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// link to the object that a schema refers to, else its kind.
func (s schema) link() markup {
	kind := html.EscapeString(s.kind())
	if s.Ref == "" {
		return markup(kind)
	}
	return markup(`<a href="#schema-` + kind + `">` + kind + `</a>`)
}

// kind of a schema in a few words.
func (s schema) kind() string {
	if s.Ref != "" {
		return last(s.Ref)
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
