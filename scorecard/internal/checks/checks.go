// Package checks has the operator's own scorecard tests: one for each kind, and those of OLM's capability levels.
package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// DefaultTimeout is for tests that do not train; trainingTimeout for those that train once, on a small node that pulls the
// worker's image first.
const (
	DefaultTimeout  = time.Minute
	trainingTimeout = 5 * time.Minute
)

// Test is one test.
type Test struct {
	// Name is the argument of the program, and the label test in the scorecard's configuration.
	Name string
	// Question is what the test checks, as one sentence.
	Question string
	// NeedsOLM says that the test applies only when OLM has installed the operator.
	NeedsOLM bool
	// Timeout defaults to DefaultTimeout.
	Timeout time.Duration
	// Run does the test. A cluster.Failure means that the test failed, any other error that it could not be run.
	Run func(ctx context.Context, env *cluster.Env) error
}

// Suite is the label suite in the scorecard's configuration: the first word of the name.
func (t Test) Suite() string {
	first, _, _ := strings.Cut(t.Name, "-")
	if first == "kind" {
		return "kinds"
	}
	return first
}

// Execute runs the test in the environment that open returns, and deletes what it created there.
func (t Test) Execute(ctx context.Context, open func() (*cluster.Env, error)) v1alpha3.TestStatus {
	env, err := open()
	if err != nil {
		return cluster.Status(t.Name, "", err)
	}
	env.Test = t.Name
	timeout := t.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = errors.Join(t.run(limited, env), env.CleanUp(ctx))
	return cluster.Status(t.Name, env.Log(), err)
}

// run turns a panic into an error, so that the log of the test's pod always has a result.
func (t Test) run(ctx context.Context, env *cluster.Env) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the test is broken: %v", reason)
		}
	}()
	return t.Run(ctx, env)
}
