package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// The codes of errors.
const (
	codeValidation   = "VALIDATION_ERROR"
	codeUnauthorized = "UNAUTHORIZED"
	codeForbidden    = "FORBIDDEN"
	codeNotFound     = "NOT_FOUND"
	codeMethod       = "METHOD_NOT_ALLOWED"
	codeConflict     = "CONFLICT"
	codeTooLarge     = "PAYLOAD_TOO_LARGE"
	codeMediaType    = "UNSUPPORTED_MEDIA_TYPE"
	codeRateLimited  = "RATE_LIMITED"
	codeInternal     = "INTERNAL_ERROR"
	codeUnavailable  = "SERVICE_UNAVAILABLE"
)

// problem is the answer to a request that failed.
type problem struct {
	status        int
	code, message string
	details       []detail
	// retryAfter is in seconds; 0: no header.
	retryAfter int
	// authenticate and allow are the headers WWW-Authenticate and Allow.
	authenticate, allow string
}

// Error implements error.
func (p *problem) Error() string { return p.code + ": " + p.message }

func invalid(message string, details ...detail) *problem {
	return &problem{status: http.StatusBadRequest, code: codeValidation, message: message, details: details}
}

func internal() *problem {
	return &problem{status: http.StatusInternalServerError, code: codeInternal,
		message: "internal error: the service's log has details under this request_id"}
}

func notFound(what string) *problem {
	return &problem{status: http.StatusNotFound, code: codeNotFound, message: what}
}

func conflict(message string) *problem {
	return &problem{status: http.StatusConflict, code: codeConflict, message: message}
}

// problemOf returns the answer to an error. Unknown errors are answered without details.
func problemOf(err error) *problem {
	var p *problem
	var forbidden *auth.Forbidden
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &forbidden):
		return &problem{status: http.StatusForbidden, code: codeForbidden, message: forbidden.Reason}
	case errors.Is(err, jobs.ErrEnded):
		return conflict("the job has already finished: GET it to see its status")
	case errors.Is(err, jobs.ErrNotDeadLetter):
		return conflict("the job is not in dead_letter: only such jobs can be requeued")
	case errors.Is(err, jobs.ErrLeaseLost):
		return conflict("the lease has expired or belongs to another worker; nothing was changed: stop working on this task")
	case errors.Is(err, jobs.ErrUnavailable), errors.Is(err, auth.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &problem{status: http.StatusServiceUnavailable, code: codeUnavailable, retryAfter: 1,
			message: "backend unavailable; the request may have been applied: try again"}
	}
	return internal()
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
	header := c.w.Header()
	if p.retryAfter > 0 {
		header["Retry-After"] = []string{strconv.Itoa(p.retryAfter)}
	}
	if p.authenticate != "" {
		header["Www-Authenticate"] = []string{p.authenticate}
	}
	if p.allow != "" {
		header["Allow"] = []string{p.allow}
	}
	var answer struct {
		Error struct {
			Code      string   `json:"code"`
			Message   string   `json:"message"`
			Details   []detail `json:"details"`
			RequestID string   `json:"request_id"`
		} `json:"error"`
	}
	answer.Error.Code, answer.Error.Message, answer.Error.RequestID = p.code, p.message, c.id
	answer.Error.Details = append([]detail{}, p.details...)
	_ = c.answerValue(p.status, answer) // Texts can always be written.
}
