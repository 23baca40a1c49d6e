// Package checks has the operator's own scorecard tests: one for each kind, and those of OLM's capability levels.
package checks

import (
	"cmp"
	"context"
	"errors"
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
	// Run does the test: it passes unless it ends by env.Check.
	Run func(env *cluster.Env)
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
	limited, cancel := context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
	defer cancel()
	env.Context = limited
	err = errors.Join(env.Run(t.Run), env.CleanUp())
	return cluster.Status(t.Name, env.Log(), err)
}

// each runs the check for all, one after another, and ends the test with the errors of all.
func each[T any](env *cluster.Env, all []T, check func(T, *cluster.Env)) {
	var wrong []error
	for _, one := range all {
		wrong = append(wrong, env.Run(func(env *cluster.Env) { check(one, env) }))
	}
	env.Check(errors.Join(wrong...))
}
