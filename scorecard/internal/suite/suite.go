// Package suite is one test of the scorecard: what it asks and how it is run.
package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

// Test is one test.
type Test struct {
	// Name is the argument of the program, and the label test in the scorecard's configuration.
	Name string
	// Suite is the label suite in the scorecard's configuration.
	Suite string
	// Question is what the test asks, as one sentence.
	Question string
	// NeedsOLM says that the test has nothing to look at unless OLM has installed the operator.
	NeedsOLM bool
	// Patience is how long the test may take; 0 means DefaultPatience.
	Patience time.Duration
	// Run does the test. A verdict.Failure is a "no" to the question; any other error means that it was not answered.
	Run func(ctx context.Context, l *lab.Lab) error
}

// DefaultPatience is how long a test may take that does not train.
const DefaultPatience = time.Minute

// Execute runs the test in the lab that open makes, and removes what it has made there.
func (t Test) Execute(ctx context.Context, open func() (*lab.Lab, error)) v1alpha3.TestStatus {
	l, err := open()
	if err != nil {
		return verdict.Status(t.Name, "", err)
	}
	patience := t.Patience
	if patience == 0 {
		patience = DefaultPatience
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = errors.Join(t.run(within, l), l.CleanUp(ctx))
	return verdict.Status(t.Name, l.Log(), err)
}

// run turns a panic into an error: without a result in its log, a test's pod tells nothing.
func (t Test) run(ctx context.Context, l *lab.Lab) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the test is broken: %v", reason)
		}
	}()
	return t.Run(ctx, l)
}
