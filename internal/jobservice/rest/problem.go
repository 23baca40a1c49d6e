package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// codes of errors, by status.
var codes = map[int]string{
	http.StatusBadRequest:            "VALIDATION_ERROR",
	http.StatusUnauthorized:          "UNAUTHORIZED",
	http.StatusForbidden:             "FORBIDDEN",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusMethodNotAllowed:      "METHOD_NOT_ALLOWED",
	http.StatusConflict:              "CONFLICT",
	http.StatusRequestEntityTooLarge: "PAYLOAD_TOO_LARGE",
	http.StatusUnsupportedMediaType:  "UNSUPPORTED_MEDIA_TYPE",
	http.StatusTooManyRequests:       "RATE_LIMITED",
	http.StatusInternalServerError:   "INTERNAL_ERROR",
	http.StatusServiceUnavailable:    "SERVICE_UNAVAILABLE",
}

// problem is the answer to a request that failed.
type problem struct {
	status  int
	message string
	// header of the answer with its value, for example Retry-After; empty: none.
	header, value string
	details       []detail
}

// Error implements error.
func (p *problem) Error() string { return codes[p.status] + ": " + p.message }

func invalid(message string, details ...detail) *problem {
	return &problem{status: http.StatusBadRequest, message: message, details: details}
}

func notFound(what string) *problem {
	return &problem{status: http.StatusNotFound, message: what}
}

// problemOf returns the answer to an error. Unknown errors are answered without details.
func problemOf(err error) *problem {
	var p *problem
	var invalid *auth.InvalidToken
	var forbidden *auth.Forbidden
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &invalid):
		challenge := `Bearer realm="job-service", error="invalid_token", error_description="` + strings.ReplaceAll(invalid.Reason, `"`, `'`) + `"`
		return &problem{status: http.StatusUnauthorized, message: invalid.Reason + ": get a new token", header: "WWW-Authenticate", value: challenge}
	case errors.As(err, &forbidden):
		return &problem{status: http.StatusForbidden, message: forbidden.Reason}
	case errors.Is(err, jobs.ErrEnded):
		return &problem{status: http.StatusConflict, message: "the job has already finished: GET it to see its status"}
	case errors.Is(err, jobs.ErrNotDeadLetter):
		return &problem{status: http.StatusConflict, message: "the job is not in dead_letter: only such jobs can be requeued"}
	case errors.Is(err, jobs.ErrLeaseLost):
		return &problem{status: http.StatusConflict,
			message: "the lease has expired or belongs to another worker; nothing was changed: stop working on this task"}
	case errors.Is(err, jobs.ErrUnavailable), errors.Is(err, auth.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &problem{status: http.StatusServiceUnavailable, header: "Retry-After", value: "1",
			message: "backend unavailable; the request may have been applied: try again"}
	}
	return &problem{status: http.StatusInternalServerError, message: "internal error: the service's log has details under this request_id"}
}

// hidden turns it into jobs.ErrNotFound that something is forbidden: who may not see it learns no more than that it is not there.
func hidden(err error) error {
	if isForbidden(err) {
		return jobs.ErrNotFound
	}
	return err
}

func isForbidden(err error) bool {
	var forbidden *auth.Forbidden
	return errors.As(err, &forbidden)
}

// problem answers with an error.
func (c *call) problem(p *problem) {
	if p.header != "" {
		c.w.Header().Set(p.header, p.value)
	}
	answer := begin(nil).object("error").text("code", codes[p.status]).text("message", p.message)
	answer = list(answer, "details", p.details, func(out []byte, d *detail) object {
		return begin(out).text("field", d.field).text("message", d.message).end()
	})
	c.answer(p.status, answer.text("request_id", c.id).end().end())
}
