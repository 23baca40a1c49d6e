package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"mime"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// answerTimeout is how long a request that does not stream may take.
const answerTimeout = 30 * time.Second

// refusedFor is when, in seconds, a client may ask again while the service accepts no jobs.
const refusedFor = "60"

// endpoint is a path with its methods.
type endpoint struct {
	service *service
	path    string
	// missing says that there is nothing of that path.
	missing string
	routes  []route
}

// route is one method of a resource.
type route struct {
	method, name string
	// scope that the token must have; routes without one need no token, and are not limited.
	scope string
	class class
	// resource that the user must be allowed to read; empty: the handler asks about what it needs.
	resource string
	// noQuery says that the request may have no parameters.
	noQuery bool
	// accepts says that a job is accepted.
	accepts bool
	// streams says that the answer may take longer than answerTimeout.
	streams bool
	// handle returns the JSON to answer with, nothing when it has answered itself, or an error when it has not answered yet.
	handle handler
}

type handler func(*call) ([]byte, error)

// call is one request and its answer.
type call struct {
	*http.Request
	w        http.ResponseWriter
	service  *service
	id       string
	start    time.Time
	status   int
	identity *auth.Identity
}

// ServeHTTP implements http.Handler.
func (r *endpoint) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s := r.service
	c := &call{Request: request, w: w, service: s, id: requestID(request), start: s.Now()}
	header := w.Header()
	header["X-Request-Id"] = []string{c.id}
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	name := "none"
	defer func() {
		reason := recover()
		isAbort := reason == http.ErrAbortHandler //nolint:errorlint // The server compares it so, too.
		if reason != nil && !isAbort {
			err := fmt.Errorf("panic: %v", reason)
			s.Log.Error(err, "Request failed", "requestID", c.id, "route", name, "stack", string(debug.Stack()))
			if c.status == 0 {
				c.problem(problemOf(err))
			}
		}
		duration := s.Now().Sub(c.start)
		if s.Metrics != nil {
			s.Metrics.Request(name, c.status, duration)
		}
		if log := s.Log.V(1); log.Enabled() {
			log.Info("Request", "requestID", c.id, "route", name, "path", request.URL.Path, "status", c.status, "duration", duration, "user", c.user())
		}
		if isAbort {
			panic(reason)
		}
	}()
	route, err := r.find(request.Method)
	if err == nil {
		name = route.name
		var answer []byte
		if answer, err = r.serve(c, route); err == nil && answer != nil {
			c.answer(http.StatusOK, answer)
		}
	}
	if err != nil {
		p := problemOf(err)
		switch p.status {
		case http.StatusInternalServerError:
			s.Log.Error(err, "Request failed", "requestID", c.id, "route", name)
		case http.StatusServiceUnavailable:
			s.Log.V(1).Info("Backend unavailable", "requestID", c.id, "route", name, "error", err.Error())
		}
		if route.scope == auth.ScopeWrite && c.identity != nil && p.status == http.StatusForbidden {
			c.audit("denied "+route.name, "", "", p.status, p.message)
		}
		if c.status == 0 {
			c.problem(p)
		}
	}
}

func (r *endpoint) find(method string) (route, error) {
	if len(r.routes) == 0 {
		return route{}, notFound("path not found: " + Base + "/docs lists all paths")
	}
	var allowed []string
	for _, found := range r.routes {
		// The server leaves the body of an answer to HEAD out.
		if found.method == method || method == http.MethodHead && found.method == http.MethodGet {
			return found, nil
		}
		allowed = append(allowed, found.method)
		if found.method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	allow := strings.Join(allowed, ", ")
	return route{}, &problem{status: http.StatusMethodNotAllowed, message: "method not allowed: use " + allow, header: "Allow", value: allow}
}

// serve does what is the same for all routes, and then the route's own.
func (r *endpoint) serve(c *call, route route) ([]byte, error) {
	if route.scope == "" {
		return route.handle(c)
	}
	identity, err := c.identify()
	if err != nil {
		return nil, err
	}
	c.identity = identity
	if err := c.count(route.class, identity.User.Username); err != nil {
		return nil, err
	}
	if !identity.Has(route.scope) {
		return nil, &problem{status: http.StatusForbidden, message: "the token lacks the scope " + route.scope + ": use one whose claim scope has it",
			header: "WWW-Authenticate", value: `Bearer realm="job-service", error="insufficient_scope", scope="` + route.scope + `"`}
	}
	if route.accepts && c.service.RefuseJobs != "" {
		return nil, &problem{status: http.StatusServiceUnavailable, header: "Retry-After", value: refusedFor, message: c.service.RefuseJobs}
	}
	if !route.streams {
		ctx, cancel := context.WithTimeout(c.Context(), answerTimeout)
		defer cancel()
		c.Request = c.WithContext(ctx)
	}
	if route.noQuery {
		if err := c.query(); err != nil {
			return nil, err
		}
	}
	if route.resource != "" {
		what := auth.Attributes{Verb: "list", Resource: route.resource, Name: c.PathValue("name")}
		if what.Name != "" {
			what.Verb = "get"
		}
		if err := c.service.access.Check(c.Context(), identity, what); err != nil {
			return nil, err
		}
	}
	answer, err := route.handle(c)
	if errors.Is(err, jobs.ErrNotFound) {
		err = notFound(r.missing)
	}
	return answer, err
}

// identify the sender. Who has no valid token is limited by address, so that tokens cannot be tried at will; and it is counted before a
// server is asked about a token, so that made-up ones cannot keep that server busy either.
func (c *call) identify() (*auth.Identity, error) {
	authenticator := c.service.Authenticator
	token, err := c.bearer()
	unknown := err == nil && !authenticator.Knows(token)
	var identity *auth.Identity
	if err == nil && !unknown {
		if identity, err = authenticator.Authenticate(c.Context(), token); err == nil {
			return identity, nil
		}
	}
	address := c.service.clientAddress(c.Request)
	taken := c.service.limiter.take(classOther, address, 1, c.start)
	if unknown && taken.ok {
		if identity, err = authenticator.Authenticate(c.Context(), token); err == nil {
			c.service.limiter.giveBack(address, c.start)
			return identity, nil
		}
	}
	return nil, cmp.Or(c.counted(classOther, taken), err)
}

// bearer is the token of the request.
func (c *call) bearer() (string, error) {
	values := c.Header["Authorization"]
	if len(values) == 0 {
		return "", &problem{status: http.StatusUnauthorized, header: "WWW-Authenticate", value: `Bearer realm="job-service"`,
			message: "the request has no token: send the header Authorization: Bearer TOKEN"}
	}
	scheme, token, found := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if !found || token == "" || !strings.EqualFold(scheme, "Bearer") || len(values) > 1 {
		return "", &auth.InvalidToken{Reason: "the header Authorization is not of the form Bearer TOKEN, or was sent twice"}
	}
	return token, nil
}

// count the request, and say so in the headers. The error is that it is one too many.
func (c *call) count(class class, client string) error {
	return c.counted(class, c.service.limiter.take(class, client, 1, c.start))
}

// countJobs counts the jobs of a request. The headers have their limit only when they are too many. What no minute has room for is no matter of
// waiting.
func (c *call) countJobs(n int) error {
	if limit := c.service.Limits.Jobs; limit > 0 && n > limit {
		return invalid(fmt.Sprintf("the request has %d jobs, and a client may submit %d in a minute: send smaller batches, or ask the administrator for a "+
			"higher --rate-limit-jobs", n, limit))
	}
	taken := c.service.limiter.take(classJobs, c.identity.User.Username, n, c.start)
	if taken.ok {
		return nil
	}
	return c.counted(classJobs, taken)
}

func (c *call) counted(class class, taken taken) error {
	if taken.limit == 0 {
		return nil
	}
	header := c.w.Header()
	header["X-RateLimit-Limit"] = []string{strconv.Itoa(taken.limit)}
	header["X-RateLimit-Remaining"] = []string{strconv.Itoa(taken.remaining)}
	header["X-RateLimit-Reset"] = []string{strconv.FormatInt(taken.reset, 10)}
	if taken.ok {
		return nil
	}
	what := "requests of this kind"
	if class == classJobs {
		what = "jobs"
	}
	if c.service.Metrics != nil {
		c.service.Metrics.Limited(class.String())
	}
	wait := max(1, taken.reset-c.start.Unix())
	return &problem{status: http.StatusTooManyRequests, header: "Retry-After", value: strconv.FormatInt(wait, 10),
		message: fmt.Sprintf("more than %d %s in a minute: wait %d seconds", taken.limit, what, wait)}
}

// safeID can go into logs and headers.
var safeID = regexp.MustCompile(`^[-\w.:/+=]{1,128}$`)

// requestID takes the client's over when it is safe, and makes one otherwise.
func requestID(r *http.Request) string {
	if given := r.Header.Get("X-Request-Id"); safeID.MatchString(given) {
		return given
	}
	var text [24]byte
	return string(strconv.AppendUint(append(text[:0], "r-"...), rand.Uint64(), 36)) //nolint:gosec // tells requests apart in logs
}

func (c *call) user() string {
	if c.identity == nil {
		return ""
	}
	return c.identity.User.Username
}

// answer writes JSON and the end of a line.
func (c *call) answer(status int, text []byte) {
	c.w.Header()["Content-Type"] = contentJSON
	c.write(status, append(text, '\n'))
}

func (c *call) write(status int, text []byte) {
	c.w.Header()["Content-Length"] = []string{strconv.Itoa(len(text))}
	c.status = status
	c.w.WriteHeader(status)
	_, _ = c.w.Write(text) // A client that has gone needs no answer.
}

var contentJSON = []string{"application/json"}

// read the fields of the request's body.
func (c *call) read(limit int64, what string, fields ...field) error {
	body, err := c.body(limit, nil)
	if err != nil {
		return err
	}
	return problemWith(what, readFields(body, fields...))
}

// body reads the request's JSON, an object, into a buffer.
func (c *call) body(limit int64, into []byte) ([]byte, error) {
	if !isJSON(c.Header.Get("Content-Type")) {
		return nil, &problem{status: http.StatusUnsupportedMediaType, message: "the body must be JSON: send the header Content-Type: application/json"}
	}
	if encoding := c.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, &problem{status: http.StatusUnsupportedMediaType, message: "the body must not be compressed: leave Content-Encoding out"}
	}
	tooLarge := &problem{status: http.StatusRequestEntityTooLarge,
		message: fmt.Sprintf("the body has more than %d bytes: send less", limit)}
	if c.ContentLength > limit {
		c.w.Header()["Connection"] = []string{"close"}
		return nil, tooLarge
	}
	buffer := bytes.NewBuffer(into)
	buffer.Grow(int(max(0, c.ContentLength)) + bytes.MinRead)
	_, err := buffer.ReadFrom(http.MaxBytesReader(c.w, c.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, invalid("the body could not be read to its end: send it again")
	}
	return checked(buffer.Bytes())
}

// checked is a body without the blanks around it, which must be an object.
func checked(body []byte) ([]byte, error) {
	body = bytes.Trim(body, " \n\t\r")
	switch {
	case !utf8.Valid(body):
		return nil, invalid("the body is not valid UTF-8")
	case len(body) == 0:
		return nil, invalid("the body is not valid JSON (it is empty): correct it")
	case !json.Valid(body):
		err := json.Unmarshal(body, new(any))
		reason := fmt.Sprint(err)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			reason = fmt.Sprintf("%s at byte %d", reason, syntax.Offset)
		}
		return nil, invalid("the body is not valid JSON (" + reason + "): correct it")
	case body[0] != '{':
		return nil, invalid("the body is " + kind(body) + ", but must be an object: put it into braces")
	}
	return body, nil
}

func isJSON(contentType string) bool {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if charset, given := parameters["charset"]; given && strings.EqualFold(charset, "utf-8") {
		delete(parameters, "charset")
	}
	return err == nil && kind == "application/json" && len(parameters) == 0
}
