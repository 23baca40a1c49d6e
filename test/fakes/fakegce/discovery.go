package fakegce

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// document is the part of the discovery document of Compute Engine that says how requests and answers look.
type document struct {
	ServicePath string               `json:"servicePath"`
	Parameters  map[string]*schema   `json:"parameters"`
	Schemas     map[string]*schema   `json:"schemas"`
	Resources   map[string]*resource `json:"resources"`

	routes   map[string][]*method
	patterns sync.Map
}

type resource struct {
	Methods   map[string]*method   `json:"methods"`
	Resources map[string]*resource `json:"resources"`
}

type method struct {
	ID         string             `json:"id"`
	HTTPMethod string             `json:"httpMethod"`
	Path       string             `json:"path"`
	Parameters map[string]*schema `json:"parameters"`
	Request    *schema            `json:"request"`
	Response   *schema            `json:"response"`

	segments []string
}

type schema struct {
	Ref         string             `json:"$ref"`
	Type        string             `json:"type"`
	Format      string             `json:"format"`
	Pattern     string             `json:"pattern"`
	Enum        []string           `json:"enum"`
	Minimum     string             `json:"minimum"`
	Maximum     string             `json:"maximum"`
	Required    bool               `json:"required"`
	Repeated    bool               `json:"repeated"`
	ReadOnly    bool               `json:"readOnly"`
	Location    string             `json:"location"`
	Properties  map[string]*schema `json:"properties"`
	Additional  *schema            `json:"additionalProperties"`
	Items       *schema            `json:"items"`
	Annotations struct {
		Required []string `json:"required"`
	} `json:"annotations"`
}

// loadDocument reads the discovery document that ships in the module google.golang.org/api: it is of the same version as
// the client under test.
var loadDocument = sync.OnceValues(func() (*document, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/api").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module google.golang.org/api: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "compute", "v1", "compute-api.json"))
	if err != nil {
		return nil, err
	}
	doc := &document{routes: map[string][]*method{}}
	if err := json.Unmarshal(content, doc); err != nil {
		return nil, fmt.Errorf("read the discovery document: %w", err)
	}
	for _, r := range doc.Resources {
		doc.addRoutes(r)
	}
	return doc, nil
})

func (d *document) addRoutes(r *resource) {
	for _, m := range r.Methods {
		m.segments = strings.Split(m.Path, "/")
		d.routes[m.HTTPMethod] = append(d.routes[m.HTTPMethod], m)
	}
	for _, child := range r.Resources {
		d.addRoutes(child)
	}
}

// match finds the method of a request and the values in its path; nil when there is none. Of several the one with the
// most literal segments counts.
func (d *document) match(httpMethod, path string) (*method, map[string]string) {
	segments := strings.Split(path, "/")
	var best *method
	most := -1
	for _, m := range d.routes[httpMethod] {
		if literals := m.literals(segments); literals > most {
			best, most = m, literals
		}
	}
	if best == nil {
		return nil, nil
	}
	values := map[string]string{}
	for i, segment := range best.segments {
		if name, ok := variable(segment); ok {
			values[name] = segments[i]
		}
	}
	return best, values
}

func (m *method) literals(segments []string) int {
	if len(m.segments) != len(segments) {
		return -1
	}
	count := 0
	for i, segment := range m.segments {
		if _, ok := variable(segment); ok {
			continue
		}
		if segment != segments[i] {
			return -1
		}
		count++
	}
	return count
}

func variable(segment string) (string, bool) {
	if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}") {
		return segment[1 : len(segment)-1], true
	}
	return "", false
}

// resolve follows references.
func (d *document) resolve(s *schema) *schema {
	for s != nil && s.Ref != "" {
		s = d.Schemas[s.Ref]
	}
	return s
}

// matches says whether all of a value fits a pattern.
func (d *document) matches(pattern, value string) bool {
	compiled, ok := d.patterns.Load(pattern)
	if !ok {
		compiled, _ = d.patterns.LoadOrStore(pattern, regexp.MustCompile("^(?:"+pattern+")$"))
	}
	return compiled.(*regexp.Regexp).MatchString(value)
}
