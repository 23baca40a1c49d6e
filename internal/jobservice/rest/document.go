package rest

import (
	"bytes"
	"cmp"
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

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

//go:embed openapi.yaml
var openAPISource []byte

//go:embed docs.html
var docsHead string

// openAPIDocument is openapi.yaml as JSON. The file is part of the program and tested, so that reading it does not fail.
var openAPIDocument = sync.OnceValues(func() ([]byte, error) { return yaml.YAMLToJSON(openAPISource) })

func (s *service) openAPI(c *call) ([]byte, error) {
	text, err := openAPIDocument()
	if err != nil {
		return nil, err
	}
	header := c.w.Header()
	header["Content-Type"] = contentJSON
	header["Cache-Control"] = []string{"public, max-age=300"}
	c.write(http.StatusOK, text)
	return nil, nil
}

func (s *service) docs(c *call) ([]byte, error) {
	page, err := docsPage()
	if err != nil {
		return nil, err
	}
	header := c.w.Header()
	header["Content-Type"] = []string{"text/html; charset=utf-8"}
	header["Content-Security-Policy"] = []string{"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
	c.write(http.StatusOK, page)
	return nil, nil
}

// docsPage is the document as HTML. html/template would do, but links all methods of all types into the program, which doubles its size.
var docsPage = sync.OnceValues(func() ([]byte, error) {
	text, err := openAPIDocument()
	if err != nil {
		return nil, err
	}
	p := &page{}
	if err := json.Unmarshal(text, &p.document); err != nil {
		return nil, err
	}
	info := p.document.Info
	p.add(docsHead, info.Title)
	p.add("<h1>%s %s</h1>\n<p>%s</p>\n", info.Title, info.Version, info.Description)
	p.add("<p>The same for programs: <a href=\"openapi.json\">openapi.json</a></p>\n<ul>\n")
	for name, o := range p.operations() {
		p.add("<li><a href=\"#%s\"><code>%s</code></a> %s</li>\n", o.OperationId, name, o.Summary)
	}
	p.add("</ul>\n")
	for name, o := range p.operations() {
		p.operation(name, o)
	}
	p.add("<h2>Objects</h2>\n")
	for name, s := range sorted(p.document.Components.Schemas) {
		p.object(name, s)
	}
	p.add("</body>\n</html>\n")
	return p.Bytes(), nil
})

// page is the HTML page of a document.
type page struct {
	bytes.Buffer
	document spec3.OpenAPI
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

func sorted[K cmp.Ordered, V any](values map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if !yield(key, values[key]) {
				return
			}
		}
	}
}

// operations by method and path, each with the parameters of the path.
func (p *page) operations() iter.Seq2[string, *spec3.Operation] {
	return func(yield func(string, *spec3.Operation) bool) {
		for path, item := range sorted(p.document.Paths.Paths) {
			for method, o := range sorted(map[string]*spec3.Operation{"DELETE": item.Delete, "GET": item.Get, "POST": item.Post}) {
				if o == nil {
					continue
				}
				whole := *o
				whole.Parameters = slices.Concat(item.Parameters, o.Parameters)
				if !yield(method+" "+path, &whole) {
					return
				}
			}
		}
	}
}

func (p *page) operation(name string, o *spec3.Operation) {
	p.add("<h2 id=\"%s\"><code>%s</code></h2>\n<p>%s. %s</p>\n", o.OperationId, name, o.Summary, o.Description)
	for _, requirement := range o.SecurityRequirement {
		for _, scope := range requirement["bearer"] {
			p.add("<p>Scope: <code>%s</code></p>\n", scope)
		}
	}
	if len(o.SecurityRequirement) == 0 {
		p.add("<p>Needs no token.</p>\n")
	}
	if len(o.Parameters) > 0 {
		p.add("<h3>Parameters</h3>\n<table><tr><th>Name</th><th>In</th><th>Type</th><th>Meaning</th></tr>\n")
		for _, parameter := range o.Parameters {
			if ref := last(parameter.Ref); ref != "" {
				parameter = p.document.Components.Parameters[ref]
			}
			p.add("<tr><td><code>%s</code></td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
				parameter.Name, parameter.In, kindOf(parameter.Schema), parameter.Description)
		}
		p.add("</table>\n")
	}
	if o.RequestBody != nil {
		for kind, body := range sorted(o.RequestBody.Content) {
			p.add("<h3>Body</h3>\n<p><code>%s</code>: %s</p>\n", kind, link(body.Schema))
			if body.Example != nil {
				example, _ := json.MarshalIndent(body.Example, "", "  ") // It came from JSON.
				p.add("<pre>%s</pre>\n", string(example))
			}
		}
	}
	p.add("<h3>Answers</h3>\n<table><tr><th>Status</th><th>Meaning</th><th>Body</th></tr>\n")
	for status, response := range sorted(o.Responses.StatusCodeResponses) {
		if ref := last(response.Ref); ref != "" {
			response = p.document.Components.Responses[ref]
		}
		p.add("<tr><td>%s</td><td>%s</td><td>", strconv.Itoa(status), response.Description)
		for kind, content := range sorted(response.Content) {
			p.add("<code>%s</code>", kind)
			if last(content.Schema.Ref) != "" {
				p.add(" %s", link(content.Schema))
			}
		}
		p.add("</td></tr>\n")
	}
	p.add("</table>\n")
}

func (p *page) object(name string, s *spec.Schema) {
	p.add("<h3 id=\"schema-%s\">%s</h3>\n<p>%s</p>\n", name, name, s.Description)
	if len(s.Properties) == 0 {
		p.add("<p>%s</p>\n", kindOf(s))
		return
	}
	p.add("<table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>\n")
	for field, property := range sorted(s.Properties) {
		always := ""
		if slices.Contains(s.Required, field) {
			always = " (always)"
		}
		p.add("<tr><td><code>%s</code>%s</td><td>%s</td><td>%s</td></tr>\n", field, always, link(&property), property.Description)
	}
	p.add("</table>\n")
}

// last part of a reference, which is a name; empty: there is no reference.
func last(ref spec.Ref) string {
	text := ref.String()
	return text[strings.LastIndexByte(text, '/')+1:]
}

// link to the object that a schema refers to, else its kind.
func link(s *spec.Schema) markup {
	kind := html.EscapeString(kindOf(s))
	if last(s.Ref) == "" {
		return markup(kind)
	}
	return markup(`<a href="#schema-` + kind + `">` + kind + `</a>`)
}

// kindOf a schema in a few words.
func kindOf(s *spec.Schema) string {
	if ref := last(s.Ref); ref != "" {
		return ref
	}
	text := strings.Join(s.Type, " or ")
	if s.Items != nil {
		text += " of " + kindOf(s.Items.Schema)
	}
	for i := range s.OneOf {
		if i > 0 {
			text += " or "
		}
		text += kindOf(&s.OneOf[i])
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
