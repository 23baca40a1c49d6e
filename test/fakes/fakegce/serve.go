package fakegce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/api/discovery/v1"
)

// call is a request that fits the discovery document.
type call struct {
	method *discovery.RestMethod
	zone   string
	// name of the instance, operation or machine type in the path.
	name  string
	query url.Values
	body  []byte
}

// The methods that the server knows, by their names in the discovery document.
var served = map[string]func(*Server, *call) (any, *refusal){
	"compute.instances.insert":             (*Server).insertInstance,
	"compute.instances.get":                (*Server).getInstance,
	"compute.instances.list":               (*Server).listInstances,
	"compute.instances.delete":             (*Server).deleteInstance,
	"compute.instances.getGuestAttributes": (*Server).getGuestAttributes,
	"compute.zoneOperations.get":           (*Server).getOperation,
	"compute.zoneOperations.list":          (*Server).listOperations,
	"compute.machineTypes.get":             (*Server).getMachineType,
}

// routes answers requests of the API and for access tokens.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(tokenPath, s.serveToken)
	for _, method := range s.doc.zonal() {
		mux.HandleFunc(method.HttpMethod+" /"+s.doc.ServicePath+method.Path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, method) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.violate("%s %s: there is no such method", r.Method, r.URL.Path)
		refuse(http.StatusNotFound, "notFound", "Not Found").write(w)
	})
	return mux
}

// serve answers a request for a method.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, method *discovery.RestMethod) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c := &call{
		method: method, query: r.URL.Query(), body: body, zone: r.PathValue("zone"),
		name: cmp.Or(s.nameOf(r.PathValue("zone"), r.PathValue("instance")), r.PathValue("operation"), r.PathValue("machineType")),
	}
	request := Request{
		Time: s.clock.Now(), Method: method.Id, Zone: c.zone, Name: c.name, RequestID: c.query.Get("requestId"), Status: http.StatusOK,
	}
	wanted, no := s.understand(r, c)
	var fault Fault
	if no == nil {
		fault = s.fault(c)
		no = fault.refusal()
	}
	var answer any
	if no == nil && !fault.LoseRequest {
		answer, no = s.handle(c)
		if fault.Twice {
			answer, no = s.handle(c)
		}
	}
	lost := fault.LoseRequest || fault.LoseAnswer
	if lost {
		request.Status = 0
	} else if no != nil {
		request.Status = no.status
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	switch {
	case lost:
		panic(http.ErrAbortHandler)
	case no != nil:
		no.write(w)
	default:
		writeJSON(w, http.StatusOK, wanted.apply(answer))
	}
}

func (s *Server) handle(c *call) (any, *refusal) {
	defer s.enter()()
	answer, no := served[c.method.Id](s, c)
	if no == nil {
		// What is read is what was before: an operation that is done at once is still seen as pending.
		answer = generic(answer)
		s.advance()
	}
	return answer, no
}

// understand holds a request against the discovery document.
func (s *Server) understand(r *http.Request, c *call) (mask, *refusal) {
	check := &checker{document: s.doc, method: c.method}
	check.parameters(r)
	if c.method.Request == nil && len(bytes.TrimSpace(c.body)) > 0 {
		check.add("%s takes no body", c.method.Id)
	}
	if c.method.Request != nil {
		if sent, err := parse(c.body); err != nil {
			check.add("body: is no JSON: %v", err)
		} else {
			check.value(&discovery.JsonSchema{Ref: c.method.Request.Ref}, sent, c.method.Request.Ref)
		}
	}
	var wanted mask
	if text := c.query.Get("fields"); text != "" {
		var err error
		if wanted, err = parseMask(text); err != nil {
			check.add("%v", err)
		}
		check.mask(wanted)
	}
	slices.Sort(check.wrong)
	for _, problem := range check.wrong {
		s.violate("%s: %s", c.method.Id, problem)
	}
	if len(check.wrong) > 0 {
		return nil, refuse(http.StatusBadRequest, "invalid", "%s", strings.Join(check.wrong, "; "))
	}
	if no := s.authorize(r, c.method.Id); no != nil {
		return nil, no
	}
	if served[c.method.Id] == nil {
		s.violate("%s: the fake does not serve this method", c.method.Id)
		return nil, refuse(http.StatusNotImplemented, "notImplemented", "%s is not served here", c.method.Id)
	}
	if project := r.PathValue("project"); project != s.opts.Project {
		return nil, refuse(http.StatusNotFound, "notFound", "The resource 'projects/%s' was not found", project)
	}
	if !slices.Contains(s.opts.Zones, c.zone) {
		return nil, refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'zone': '%s'. Unknown zone.", c.zone)
	}
	return wanted, nil
}

// parse reads JSON with its numbers as they are written.
func parse(content []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// generic is the JSON of a value, parsed.
func generic(value any) any {
	if _, ok := value.(map[string]any); ok {
		return value
	}
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	parsed, err := parse(content)
	if err != nil {
		panic(err)
	}
	return parsed
}
