package cloud

import (
	"errors"
	"fmt"
	"time"
)

// Class of an Error: what can be done about it.
type Class string

// The classes.
const (
	// Stockout: the zone has no such instance to give now; another zone, model or time may.
	Stockout Class = "Stockout"
	// Quota: the account's quota does not allow it; another region may, or an administrator must raise it.
	Quota Class = "Quota"
	// Permission: the credentials are wrong or may not do this; a user must correct them.
	Permission Class = "Permission"
	// Invalid: the request names something that does not exist or does not fit; the spec must be corrected.
	Invalid Class = "Invalid"
	// NotFound: the instance or operation does not exist.
	NotFound Class = "NotFound"
	// AlreadyExists: an instance of that name is there.
	AlreadyExists Class = "AlreadyExists"
	// RateLimited: too many requests; the same request may go through later.
	RateLimited Class = "RateLimited"
	// Transient: the answer is lost or the provider failed; the same request may go through later, or has gone through.
	Transient Class = "Transient"
)

// Error is what the provider answered instead of doing what it was asked for.
type Error struct {
	Class Class
	// Code in the provider's words, for example ZONE_RESOURCE_POOL_EXHAUSTED.
	Code string
	// Message of the provider, for people.
	Message string
	// RetryAfter is how long the provider wants to be left alone; 0 when it does not say.
	RetryAfter time.Duration
	// Err is the cause, if there is one.
	Err error
}

func (e *Error) Error() string {
	if e.Code == "" {
		return e.Message
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// ClassOf is the class of an error; Transient for one that no provider classified, since nothing is known of what it
// did; empty for nil.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	if classified := (*Error)(nil); errors.As(err, &classified) {
		return classified.Class
	}
	return Transient
}
