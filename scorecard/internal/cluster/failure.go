package cluster

import (
	"errors"
	"fmt"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
)

// Failure is what the operator or its bundle does wrong. Every other error means that the test could not be run.
type Failure struct {
	message string
	remedy  string
}

// Failf formats a Failure.
func Failf(format string, args ...any) *Failure {
	return &Failure{message: fmt.Sprintf(format, args...)}
}

// Try adds a remedy, which the scorecard shows as a suggestion.
func (f *Failure) Try(remedy string) *Failure {
	f.remedy = remedy
	return f
}

// Error implements error.
func (f *Failure) Error() string { return f.message }

// Status is the status of a test of the name that ended with the error; nil passes. An error that is, or joins, only
// Failures fails the test; any other one makes its state "error".
func Status(name, log string, err error) v1alpha3.TestStatus {
	result := v1alpha3.TestResult{Name: name, Log: log, State: v1alpha3.PassState}
	for _, one := range split(err) {
		result.Errors = append(result.Errors, one.Error())
		var failure *Failure
		switch {
		case !errors.As(one, &failure):
			result.State = v1alpha3.ErrorState
		case result.State == v1alpha3.PassState:
			result.State = v1alpha3.FailState
		}
		if failure != nil && failure.remedy != "" {
			result.Suggestions = append(result.Suggestions, failure.remedy)
		}
	}
	return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{result}}
}

// split returns the errors that were joined into one.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, split(one)...)
	}
	return all
}
