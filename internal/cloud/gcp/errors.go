package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// question says what a call was about, because the same answer means different things.
type question int

const (
	// aboutInstance and aboutOperation ask for something by its name: 404 says that it is not there.
	aboutInstance question = iota
	aboutOperation
	// aboutCreation names an image, a network, a machine type: 404 says that one of these does not exist.
	aboutCreation
	// aboutCatalog asks for a zone or a machine type: 404 says that the spec is wrong.
	aboutCatalog
)

// classify says what can be done about the error of a call.
func classify(what question, err error) *cloud.Error {
	if answer := (*googleapi.Error)(nil); errors.As(err, &answer) {
		return classifyAnswer(what, answer)
	}
	if failed := (*tokenError)(nil); errors.As(err, &failed) {
		return classifyToken(failed)
	}
	message := "the answer of Compute Engine was lost: " + err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		message = "Compute Engine did not answer in time"
	}
	return &cloud.Error{Class: cloud.Transient, Code: "NoAnswer", Message: message, Err: err}
}

// classifyToken is for the request of an access token.
func classifyToken(failed *tokenError) *cloud.Error {
	answer := (*oauth2.RetrieveError)(nil)
	if !errors.As(failed, &answer) || answer.Response == nil {
		return &cloud.Error{
			Class: cloud.Transient, Code: "NoToken", Message: "no access token is available: " + failed.Error(), Err: failed,
		}
	}
	e := &cloud.Error{Code: "NoToken", Err: failed, RetryAfter: retryAfter(answer.Response.Header)}
	reason := answer.Response.Status
	var body struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(answer.Body, &body) == nil && body.Code != "" {
		e.Code, reason = body.Code, strings.TrimSuffix(body.Description, ".")
	}
	switch status := answer.Response.StatusCode; {
	case status == http.StatusTooManyRequests:
		e.Class, e.Message = cloud.RateLimited, "too many requests for access tokens: "+reason
	case status >= http.StatusInternalServerError:
		e.Class, e.Message = cloud.Transient, "no access token is available: "+reason
	default:
		e.Class = cloud.Permission
		e.Message = "Google gives no access token for these credentials (" + reason +
			"): check that the service account and its key exist and are enabled"
	}
	return e
}

// Reasons that Google gives for 403, by what they mean. All others are permissions.
var (
	rateReasons  = []string{"rateLimitExceeded", "userRateLimitExceeded", "concurrentLimitExceeded", "RATE_LIMIT_EXCEEDED"}
	quotaReasons = []string{"quotaExceeded", "limitExceeded", "QUOTA_EXCEEDED", "dailyLimitExceeded"}
	stockReasons = []string{"ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "stockout", "STOCKOUT"}
	busyReasons  = []string{"resourceNotReady", "resourceInUseByAnotherResource", "RESOURCE_NOT_READY", "operationInProgress"}
)

func classifyAnswer(what question, answer *googleapi.Error) *cloud.Error {
	e := &cloud.Error{
		Code: strconv.Itoa(answer.Code), Message: answer.Message, RetryAfter: retryAfter(answer.Header), Err: answer,
	}
	if len(answer.Errors) > 0 {
		e.Code, e.Message = answer.Errors[0].Reason, cmp.Or(e.Message, answer.Errors[0].Message)
	}
	e.Message = cmp.Or(e.Message, http.StatusText(answer.Code))
	has := func(reasons []string) bool {
		return slices.ContainsFunc(answer.Errors, func(item googleapi.ErrorItem) bool { return slices.Contains(reasons, item.Reason) })
	}
	switch {
	case has(stockReasons):
		e.Class = cloud.Stockout
	case answer.Code == http.StatusTooManyRequests || has(rateReasons):
		e.Class = cloud.RateLimited
	case has(quotaReasons):
		e.Class = cloud.Quota
	case has(busyReasons):
		e.Class = cloud.Transient
	case answer.Code == http.StatusUnauthorized || answer.Code == http.StatusForbidden:
		e.Class = cloud.Permission
		e.Message = withRemedy(e.Message, answer)
	case answer.Code == http.StatusPreconditionFailed:
		// A constraint of the organization: an administrator must lift it, or the spec must keep to it.
		e.Class = cloud.Permission
	case answer.Code == http.StatusNotFound || answer.Code == http.StatusGone:
		e.Class = notThere(what, answer)
	case answer.Code == http.StatusConflict && what == aboutCreation:
		e.Class = cloud.AlreadyExists
	case answer.Code == http.StatusConflict || answer.Code == http.StatusRequestTimeout || answer.Code >= http.StatusInternalServerError:
		e.Class = cloud.Transient
	default:
		e.Class = cloud.Invalid
	}
	return e
}

// notThere tells a missing instance from a missing project, zone or image.
func notThere(what question, answer *googleapi.Error) cloud.Class {
	if what == aboutInstance && strings.Contains(answer.Message, "/instances/") ||
		what == aboutOperation && strings.Contains(answer.Message, "/operations/") {
		return cloud.NotFound
	}
	return cloud.Invalid
}

// hasNoGuestAttributes says that an instance is there and has no guest attributes yet.
func hasNoGuestAttributes(err error) bool {
	answer := (*googleapi.Error)(nil)
	return errors.As(err, &answer) && answer.Code == http.StatusNotFound && strings.Contains(answer.Message, "Guest Attribute")
}

// withRemedy adds what to do to messages that do not say it.
func withRemedy(message string, answer *googleapi.Error) string {
	switch {
	case answer.Code == http.StatusUnauthorized:
		return message + " Check the key in the Secret, or the operator's workload identity"
	case strings.HasPrefix(message, "Required '"):
		return message + ": grant the service account a role that contains it"
	}
	return message
}

// Codes that operations end with, by what they mean.
var operationClasses = map[string]cloud.Class{
	"ZONE_RESOURCE_POOL_EXHAUSTED":                     cloud.Stockout,
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS":        cloud.Stockout,
	"RESOURCE_POOL_EXHAUSTED":                          cloud.Stockout,
	"STOCKOUT":                                         cloud.Stockout,
	"QUOTA_EXCEEDED":                                   cloud.Quota,
	"QUOTA_LIMIT_EXCEEDED":                             cloud.Quota,
	"PERMISSIONS_ERROR":                                cloud.Permission,
	"FORBIDDEN":                                        cloud.Permission,
	"CONDITION_NOT_MET":                                cloud.Permission,
	"RESOURCE_NOT_FOUND":                               cloud.Invalid,
	"INVALID_USAGE":                                    cloud.Invalid,
	"INVALID_FIELD_VALUE":                              cloud.Invalid,
	"UNSUPPORTED_OPERATION":                            cloud.Invalid,
	"RESOURCE_ALREADY_EXISTS":                          cloud.AlreadyExists,
	"RATE_LIMIT_EXCEEDED":                              cloud.RateLimited,
	"RESOURCE_OPERATION_RATE_EXCEEDED":                 cloud.RateLimited,
	"RESOURCE_NOT_READY":                               cloud.Transient,
	"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE":              cloud.Transient,
	"INTERNAL_ERROR":                                   cloud.Transient,
	"SERVICE_UNAVAILABLE":                              cloud.Transient,
	"VM_MIN_COUNT_NOT_REACHED":                         cloud.Stockout,
	"ZONAL_RESOURCE_POOL_EXHAUSTED":                    cloud.Stockout,
	"RESERVATION_CAPACITY_EXCEEDED":                    cloud.Stockout,
	"EXTERNAL_RESOURCE_NOT_FOUND":                      cloud.Invalid,
	"INSTANCE_CREATION_BLOCKED_BY_ORGANIZATION_POLICY": cloud.Permission,
}

// classifyOperation is the error of an operation that has ended; nil when it went well.
func classifyOperation(op *compute.Operation) error {
	if op.Error == nil || len(op.Error.Errors) == 0 {
		if op.HttpErrorStatusCode == 0 {
			return nil
		}
		return classifyAnswer(aboutCreation, &googleapi.Error{Code: int(op.HttpErrorStatusCode), Message: op.HttpErrorMessage})
	}
	// Of several errors the first that says more than that something failed decides.
	var first *cloud.Error
	for _, problem := range op.Error.Errors {
		e := &cloud.Error{Code: problem.Code, Message: problem.Message, Class: operationClasses[problem.Code]}
		if e.Class == "" {
			e.Class = classifyAnswer(aboutCreation, &googleapi.Error{Code: int(op.HttpErrorStatusCode), Message: problem.Message}).Class
		}
		if first == nil || first.Class == cloud.Transient && e.Class != cloud.Transient {
			first = e
		}
	}
	first.Message = cmp.Or(first.Message, "operation "+op.Name+" failed")
	return first
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
