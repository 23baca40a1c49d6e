package fakegce

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/api/discovery/v1"
)

// document is the discovery document of Compute Engine, which says how requests and answers look.
type document struct{ discovery.RestDescription }

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
	doc := &document{}
	if err := json.Unmarshal(content, &doc.RestDescription); err != nil {
		return nil, fmt.Errorf("read the discovery document: %w", err)
	}
	return doc, nil
})

// zonal are the methods on what is in a zone.
func (d *document) zonal() (methods []*discovery.RestMethod) {
	for _, resource := range d.Resources {
		for _, method := range resource.Methods {
			rest, ok := strings.CutPrefix(method.Path, "projects/{project}/zones/{zone}/")
			if ok && !strings.HasPrefix(rest, "{") { // a name of a collection, not a variable
				methods = append(methods, &method)
			}
		}
	}
	return methods
}

// resolve follows references.
func (d *document) resolve(s *discovery.JsonSchema) *discovery.JsonSchema {
	for s != nil && s.Ref != "" {
		found := d.Schemas[s.Ref]
		s = &found
	}
	return s
}

// has says whether a resource of the schema may have the field of a path. Lists on the path are those of resources with it.
func (d *document) has(schema discovery.JsonSchema, path []string) bool {
	s := &schema
	for _, name := range path {
		s = d.resolve(s)
		for s != nil && s.Type == "array" {
			s = d.resolve(s.Items)
		}
		if s == nil {
			return false
		}
		if field, ok := s.Properties[name]; ok {
			s = &field
		} else if s = s.AdditionalProperties; s == nil {
			return name == "*"
		}
	}
	return true
}
