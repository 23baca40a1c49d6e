package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// generator makes requests from the document: values that are right, at their bounds, beyond them, of other types, huge and strange.
type generator struct {
	*rand.Rand
	// ids are of jobs that there are.
	ids []string
}

func (g *generator) one(of ...any) any { return of[g.IntN(len(of))] }

var strange = []any{
	nil, true, false, 0, -1, 1, 1e308, -1e308, 0.1, json.Number("1e999"), json.Number("9223372036854775808"), json.Number("-0"), "", " ", "0", "null",
	"ünï日本😀", "a\u0000b", "\u202e", "'; DROP TABLE jobs; --", "../../etc/passwd", "{{7*7}}", "%s%n", strings.Repeat("x", 5000), "\r\nX-Evil: 1",
	[]any{}, []any{nil}, map[string]any{}, map[string]any{"": nil}, map[string]any{"a": map[string]any{"b": []any{1, "2", nil}}},
}

// value of a schema; with the chance wrong, something else.
func (g *generator) value(ref *openapi3.SchemaRef, wrong float64) any {
	if ref == nil || ref.Value == nil || g.Float64() < wrong {
		return strange[g.IntN(len(strange))]
	}
	s := ref.Value
	switch {
	case len(s.OneOf) > 0:
		return g.value(s.OneOf[g.IntN(len(s.OneOf))], wrong)
	case len(s.Enum) > 0:
		return s.Enum[g.IntN(len(s.Enum))]
	case s.Type.Is("object"):
		object := map[string]any{}
		for name, property := range s.Properties {
			if slices.Contains(s.Required, name) && g.Float64() > wrong || g.Float64() < 0.4 {
				object[name] = g.value(property, wrong)
			}
		}
		if s.AdditionalProperties.Has != nil && *s.AdditionalProperties.Has || g.Float64() < wrong {
			for range g.IntN(3) {
				object[fmt.Sprint(g.one("a", "b", "日", "", "job_type", "x y"))] = strange[g.IntN(len(strange))]
			}
		}
		return object
	case s.Type.Is("array"):
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(s.Items, wrong))
		}
		return list
	case s.Type.Is("boolean"):
		return g.IntN(2) == 0
	case s.Type.Is("integer"), s.Type.Is("number"):
		low, high := -10.0, 1e6
		if s.Min != nil {
			low = *s.Min
		}
		if s.Max != nil {
			high = *s.Max
		}
		if g.Float64() < wrong {
			return g.one(low-1, high+1, low-0.5, high*1e30)
		}
		return g.one(low, high, low+float64(g.IntN(int(min(high-low, 1e6))+1)))
	}
	names := []any{"inference", "team-a", "default", "a", strings.Repeat("q", 63), "500m", "16Gi", "registry.example.com/a:v1", "topology.kubernetes.io/zone"}
	if g.Float64() < wrong {
		return g.one(strings.Repeat("q", 64), strings.Repeat("q", 2000), "-", "A", "a b", "\x7f", "日本")
	}
	return g.one(names...)
}

// fuzzed is a request of the generator.
type fuzzed struct {
	method, path, body string
	// valid says that the document allows the body, as another program reads it.
	valid bool
}

func (g *generator) request(wrong float64) fuzzed {
	paths := document().Paths.InMatchingOrder()
	template := paths[g.IntN(len(paths))]
	if g.IntN(4) == 0 { // What is submitted has the most fields.
		template = fmt.Sprint(g.one("/jobs/", "/jobs/batch"))
	}
	item := document().Paths.Value(template)
	methods := []string{}
	for method := range item.Operations() {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	r := fuzzed{method: methods[g.IntN(len(methods))], valid: true}
	operation := item.Operations()[r.method]
	if g.Float64() < wrong/4 {
		r.method = fmt.Sprint(g.one("PUT", "PATCH", "OPTIONS", "HEAD", "POST", "DELETE"))
	}
	path := template
	for _, name := range []string{"id", "name", "namespace"} {
		value := fmt.Sprint(g.value(&openapi3.SchemaRef{Value: openapi3.NewStringSchema()}, wrong))
		if name == "id" && g.Float64() > wrong {
			value = g.ids[g.IntN(len(g.ids))]
		}
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	query := url.Values{}
	for _, p := range operation.Parameters {
		if p.Value.In == "query" && g.Float64() < 0.4 && p.Value.Name != "follow" {
			query.Add(p.Value.Name, fmt.Sprint(g.value(p.Value.Schema, wrong)))
		}
	}
	if g.Float64() < wrong/2 {
		query.Add(fmt.Sprint(g.one("x", "limit", "日", "")), fmt.Sprint(strange[g.IntN(len(strange))]))
	}
	r.path = "/api/v1" + path
	if len(query) > 0 {
		r.path += "?" + query.Encode()
	}
	if operation.RequestBody == nil {
		return r
	}
	schema := operation.RequestBody.Value.Content["application/json"].Schema
	value := g.value(schema, wrong)
	if object, ok := value.(map[string]any); ok && strings.HasSuffix(template, "/lease") {
		if wait, ok := object["wait_seconds"].(float64); !ok || wait > 0 {
			object["wait_seconds"] = 0 // Waiting finds nothing.
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte(`{"number": 1e999}`)
	}
	if g.Float64() < wrong/4 { // Broken on the way.
		switch cut := g.IntN(len(text) + 1); g.IntN(3) {
		case 0:
			text = text[:cut]
		case 1:
			text = slices.Insert(slices.Clone(text), cut, byte(g.IntN(256)))
		default:
			text = append(text, text...)
		}
	}
	r.body = string(text)
	var read any
	decoder := json.NewDecoder(bytes.NewReader(text))
	r.valid = decoder.Decode(&read) == nil && schema.Value.VisitJSON(read) == nil
	return r
}

// Whatever is sent, the answer is one of those in the document, never a 500; and what the document forbids is not done.
func TestRequestsFromTheDocument(t *testing.T) {
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			s := newService(t, open(t))
			g := &generator{Rand: rand.New(rand.NewPCG(6, 2))}
			for range 5 {
				g.ids = append(g.ids, s.submit(t, all, `{"job_type":"inference"}`))
			}
			bearer := token(t, all)
			answers := map[int]int{}
			for i := range 4000 {
				r := g.request([]float64{0, 0.05, 0.3}[i%3])
				request, err := http.NewRequestWithContext(t.Context(), r.method, s.URL+r.path, strings.NewReader(r.body))
				require.NoError(t, err, "%q", r.path)
				request.Header.Set("Authorization", "Bearer "+bearer)
				request.Header.Set("Content-Type", "application/json")
				a := s.do(t, request)
				answers[a.status]++
				require.NotContains(t, []int{http.StatusInternalServerError, http.StatusServiceUnavailable}, a.status, "%s %s %q: %s", r.method, r.path, r.body, a.body)
				if !r.valid && r.method == http.MethodPost {
					require.GreaterOrEqual(t, a.status, 400, "%s %s %q was accepted: %s", r.method, r.path, r.body, a.body)
				}
				require.False(t, t.Failed(), "%s %s %q", r.method, r.path, r.body)
				if a.status == http.StatusCreated && len(g.ids) < 100 {
					if id, ok := a.json(t)["id"].(string); ok {
						g.ids = append(g.ids, id)
					}
				}
			}
			t.Log("answers by status:", answers)
			for _, status := range []int{200, 201, 400, 404, 405, 409} {
				require.Positive(t, answers[status], "the requests are worth something: %v", answers)
			}
		})
	}
}

// direct answers without a connection, for fuzzing.
func direct(f *testing.F) (http.Handler, string) {
	f.Helper()
	authenticator, err := auth.New(auth.Options{Secrets: [][]byte{secret}})
	require.NoError(f, err)
	return rest.New(rest.Options{Store: &forgetful{newMemory()}, Authenticator: authenticator, Log: logr.Discard()}), token(f, all)
}

// forgetful keeps no jobs, so that fuzzing does not fill the memory.
type forgetful struct{ *memory }

func (m *forgetful) Submit(_ context.Context, submitted []*jobs.Job) ([]int, error) {
	positions := make([]int, len(submitted))
	for i, job := range submitted {
		job.ID, job.Status, positions[i] = unknownID, jobs.Queued, i+1
		job.CreatedAt = fixed
	}
	return positions, nil
}

func FuzzSubmission(f *testing.F) {
	handler, bearer := direct(f)
	for _, test := range contract() {
		if test.path == "/jobs/" && test.method == "POST" {
			f.Add(test.body)
		}
	}
	schema := document().Components.Schemas["NewJob"].Value
	f.Fuzz(func(t *testing.T, body string) {
		request := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+bearer)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		a := answer{recorder.Code, recorder.Header(), recorder.Body.Bytes()}
		if problem := undocumented(request.Method, request.URL, a); problem != "" {
			t.Fatal(problem)
		}
		var value any
		if a.status == http.StatusCreated && (json.Unmarshal([]byte(body), &value) != nil || schema.VisitJSON(value) != nil) {
			t.Fatalf("the document forbids what was accepted: %s", body)
		}
		if a.status == http.StatusInternalServerError {
			t.Fatalf("%s", a.body)
		}
	})
}

func FuzzPath(f *testing.F) {
	handler, bearer := direct(f)
	for _, test := range contract() {
		f.Add(test.method, test.path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		target, err := url.Parse("http://localhost/api/v1" + path)
		if err != nil || !isToken(method) || strings.Contains(path, "follow") {
			t.Skip()
		}
		request := &http.Request{Method: method, URL: target, Header: http.Header{"Authorization": {"Bearer " + bearer}}, Body: http.NoBody}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code == http.StatusInternalServerError || recorder.Code >= 300 && recorder.Code < 400 || recorder.Code == 0 {
			t.Fatalf("%s %s: %d %s", method, path, recorder.Code, recorder.Body)
		}
	})
}

func isToken(text string) bool {
	return text != "" && strings.Trim(strings.ToUpper(text), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

var fixed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
