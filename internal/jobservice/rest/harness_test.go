package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-logr/logr"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// The tokens of the tests.
const (
	all     = "alice" // every scope, namespaces team-a and default
	reader  = "reader"
	writer  = "writer"
	worker  = "worker"
	other   = "bob" // every scope, another namespace
	tenant  = "eve" // as bob, for tasks of a queue of its own
	admin   = "admin"
	noToken = ""
)

func token(t testing.TB, name string) string {
	t.Helper()
	scopes := "jobs:read jobs:write tasks:work"
	claims := auth.Claims{Namespaces: auth.Texts{"team-a", "default"}, Namespace: "team-a"}
	switch name {
	case reader:
		scopes = "jobs:read"
	case writer:
		scopes = "jobs:write"
	case worker:
		scopes, claims.Queues = "tasks:work", auth.Texts{"inference", "simulation", "retries", "training"}
	case other:
		claims.Namespaces, claims.Namespace = auth.Texts{"team-b"}, "team-b"
	case tenant:
		claims.Namespaces, claims.Namespace, claims.Queues = auth.Texts{"team-b"}, "team-b", auth.Texts{"own"}
	case admin:
		claims.Namespaces = auth.Texts{"*"}
	}
	claims.Scope = scopes
	claims.RegisteredClaims = jwt.RegisteredClaims{Subject: name, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}
	text, err := auth.Sign(secret, claims)
	require.NoError(t, err)
	return text
}

// service is the real handler behind a real server.
type service struct {
	*httptest.Server
	store jobs.Store
}

func newService(t testing.TB, store jobs.Store, change ...func(*rest.Options)) *service {
	t.Helper()
	authenticator, err := auth.New(auth.Options{Secrets: [][]byte{secret}})
	require.NoError(t, err)
	options := rest.Options{Store: store, Authenticator: authenticator, Log: logr.Discard(), LogInterval: 5 * time.Millisecond}
	for _, f := range change {
		f(&options)
	}
	server := httptest.NewServer(rest.New(options))
	t.Cleanup(server.Close)
	return &service{Server: server, store: store}
}

// answer of the service.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var value map[string]any
	require.NoError(t, json.Unmarshal(a.body, &value), "%s", a.body)
	return value
}

// problem of the answer: code, and the names of the fields in details.
func (a answer) problem(t testing.TB) (code string, fields []string, message string) {
	t.Helper()
	var value struct {
		Error struct {
			Code, Message string
			Details       []struct{ Field, Message string }
			RequestID     string `json:"request_id"`
		}
	}
	require.NoError(t, json.Unmarshal(a.body, &value), "%s", a.body)
	require.NotEmpty(t, value.Error.RequestID)
	require.Equal(t, a.header.Get("X-Request-ID"), value.Error.RequestID)
	message = value.Error.Message
	for _, d := range value.Error.Details {
		fields = append(fields, d.Field)
		message += "; " + d.Field + ": " + d.Message
	}
	return value.Error.Code, fields, message
}

// send a request, and hold the answer to the document.
func (s *service) send(t testing.TB, method, path, user, body string, header ...string) answer {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, reader)
	require.NoError(t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if user != noToken {
		request.Header.Set("Authorization", "Bearer "+token(t, user))
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Del(header[i])
		if header[i+1] != "" {
			request.Header.Add(header[i], header[i+1])
		}
	}
	return s.do(t, request)
}

// client follows no redirect, because there is to be none.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (s *service) do(t testing.TB, request *http.Request) answer {
	t.Helper()
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	a := answer{response.StatusCode, response.Header, body}
	if problem := undocumented(request.Method, request.URL, a); problem != "" {
		t.Errorf("%s %s: %s", request.Method, request.URL, problem)
	}
	return a
}

// submit a job for a test that needs one.
func (s *service) submit(t testing.TB, user, body string) string {
	t.Helper()
	a := s.send(t, http.MethodPost, "/api/v1/jobs/", user, body)
	require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
	return a.json(t)["id"].(string)
}

// lease a task of a queue, which must be there.
func (s *service) lease(t testing.TB, queue string) (id string, token int64) {
	t.Helper()
	a := s.send(t, http.MethodPost, "/api/v1/tasks/lease", all, fmt.Sprintf(`{"queue":%q,"worker_id":"w-1","wait_seconds":5}`, queue))
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	tasks := a.json(t)["tasks"].([]any)
	require.Len(t, tasks, 1)
	task := tasks[0].(map[string]any)
	return task["id"].(string), int64(task["lease_token"].(float64))
}

// document is what the service serves, read by a library that knows the standard.
var document = sync.OnceValue(func() *openapi3.T {
	recorder := httptest.NewRecorder()
	authenticator, _ := auth.New(auth.Options{Secrets: [][]byte{secret}})
	rest.New(rest.Options{Store: newMemory(), Authenticator: authenticator, Log: logr.Discard()}).
		ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/api/v1/openapi.json", nil))
	doc, err := openapi3.NewLoader().LoadFromData(recorder.Body.Bytes())
	if err != nil {
		panic(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		panic(err)
	}
	for _, kind := range []string{"text/html", "text/event-stream"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
	}
	return doc
})

// operation of the document for a request; nil: there is none.
func operation(method string, target *url.URL) (*routers.Route, map[string]string) {
	path, ok := strings.CutPrefix(target.EscapedPath(), "/api/v1")
	if !ok || strings.Contains(target.Path, "//") || strings.Contains(target.Path, "/.") {
		return nil, nil
	}
	given := strings.Split(strings.Trim(path, "/"), "/")
	var found *routers.Route
	var values map[string]string
	for template, item := range document().Paths.Map() {
		parts := strings.Split(strings.Trim(template, "/"), "/")
		if len(parts) != len(given) {
			continue
		}
		matched := map[string]string{}
		for i, part := range parts {
			switch {
			case strings.HasPrefix(part, "{") && given[i] != "":
				matched[strings.Trim(part, "{}")] = given[i]
			case part != given[i]:
				matched = nil
			}
			if matched == nil {
				break
			}
		}
		// The path with fewer variables is meant.
		if matched == nil || found != nil && len(matched) >= len(values) {
			continue
		}
		values = matched
		found = &routers.Route{Spec: document(), Path: template, PathItem: item, Method: method, Operation: item.GetOperation(method)}
	}
	return found, values
}

// undocumented says in what an answer is not as the document says; empty: in nothing.
func undocumented(method string, target *url.URL, a answer) string {
	if a.header.Get("X-Request-Id") == "" {
		return "the answer has no X-Request-ID"
	}
	if method == http.MethodHead {
		return "" // It is GET without a body, and that is all there is to hold to the document.
	}
	route, values := operation(method, target)
	if route == nil || route.Operation == nil {
		want := http.StatusNotFound
		if route != nil {
			want = http.StatusMethodNotAllowed
			if a.header.Get("Allow") == "" {
				return "the answer has no Allow"
			}
		}
		if a.status != want {
			return fmt.Sprintf("the answer to what is not documented is %d: %s", a.status, a.body)
		}
		var value any
		if err := json.Unmarshal(a.body, &value); err != nil {
			return err.Error()
		}
		if err := document().Components.Schemas["Error"].Value.VisitJSON(value); err != nil {
			return err.Error()
		}
		return ""
	}
	request, _ := http.NewRequest(method, target.String(), nil)
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: values, Route: route},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		return fmt.Sprintf("status %d: %v", a.status, err)
	}
	return ""
}
