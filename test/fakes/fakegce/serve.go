package fakegce

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/api/compute/v1"
)

// call is a request that fits the discovery document.
type call struct {
	method *method
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

// ServeHTTP answers requests of the API and for access tokens.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == tokenPath {
		s.serveToken(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request := Request{Time: s.clock.Now()}
	c, m, no := s.understand(r, body)
	if c != nil {
		request.Method, request.Zone, request.Name = c.method.ID, c.zone, c.name
		request.RequestID = c.query.Get("requestId")
	}
	var fault *Fault
	if no == nil {
		fault = s.fault(c)
		no = fault.refusal()
	}
	var answer any
	if no == nil && !fault.losesRequest() {
		answer, no = s.handle(c)
		if fault.twice() {
			answer, no = s.handle(c)
		}
	}
	lost := fault.losesRequest() || fault.losesAnswer()
	switch {
	case lost:
	case no != nil:
		request.Status = no.status
	default:
		request.Status = http.StatusOK
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
		writeAnswer(w, m.apply(generic(answer)))
	}
}

func (s *Server) handle(c *call) (any, *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	answer, no := served[c.method.ID](s, c)
	if no == nil {
		// What is read is what was before: an operation that is done at once is still seen as pending.
		answer = generic(answer)
		s.advance()
	}
	return answer, no
}

// understand holds a request against the discovery document.
func (s *Server) understand(r *http.Request, body []byte) (*call, mask, *refusal) {
	path, ok := strings.CutPrefix(r.URL.Path, "/"+s.doc.ServicePath)
	if !ok {
		s.violate("%s %s: is not below /%s", r.Method, r.URL.Path, s.doc.ServicePath)
		return nil, nil, refuse(http.StatusNotFound, "notFound", "Not Found")
	}
	m, values := s.doc.match(r.Method, path)
	if m == nil {
		s.violate("%s %s: there is no such method", r.Method, r.URL.Path)
		return nil, nil, refuse(http.StatusNotFound, "notFound", "Not Found")
	}
	query := r.URL.Query()
	c := &call{method: m, zone: values["zone"], query: query, body: body}
	for _, name := range []string{"instance", "operation", "machineType"} {
		if values[name] != "" {
			c.name = values[name]
		}
	}
	wrong := s.doc.checkParameters(m, values, query)
	if m.Request == nil && len(bytes.TrimSpace(body)) > 0 {
		wrong = append(wrong, m.ID+" takes no body")
	}
	if m.Request != nil {
		var sent any
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&sent); err != nil {
			wrong = append(wrong, "body: is no JSON: "+err.Error())
		} else {
			wrong = append(wrong, s.doc.checkBody(m, m.Request, sent, m.Request.Ref)...)
		}
	}
	var wanted mask
	if text := query.Get("fields"); text != "" {
		var err error
		if wanted, err = parseMask(text); err != nil {
			wrong = append(wrong, err.Error())
		}
		wrong = append(wrong, s.doc.checkMask(m.Response, wanted, "")...)
	}
	if len(wrong) > 0 {
		for _, problem := range wrong {
			s.violate("%s: %s", m.ID, problem)
		}
		return c, nil, refuse(http.StatusBadRequest, "invalid", "%s", strings.Join(wrong, "; "))
	}
	if no := s.authorize(r, m); no != nil {
		return c, nil, no
	}
	if served[m.ID] == nil {
		s.violate("%s: the fake does not serve this method", m.ID)
		return c, nil, refuse(http.StatusNotImplemented, "notImplemented", "%s is not served here", m.ID)
	}
	return c, wanted, s.place(values)
}

// place says what is wrong with the project and the zone.
func (s *Server) place(values map[string]string) *refusal {
	if project := values["project"]; project != s.opts.Project {
		return refuse(http.StatusNotFound, "notFound", "The resource 'projects/%s' was not found", project)
	}
	if zone := values["zone"]; !s.hasZone(zone) {
		return refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'zone': '%s'. Unknown zone.", zone)
	}
	return nil
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
	var parsed any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(&parsed); err != nil {
		panic(err)
	}
	return parsed
}

func writeAnswer(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(answer)
}

// instanceBody reads the instance that is to be inserted.
func (c *call) instanceBody() (*compute.Instance, error) {
	instance := &compute.Instance{}
	return instance, json.Unmarshal(c.body, instance)
}
