// Package level5 asks the questions of capability level 5, Auto Pilot.
package level5

import "github.com/dcnlab/spot-training-operator/scorecard/internal/suite"

// Suite is the label of these tests.
const Suite = "level5"

// Tests returns the tests of the level.
func Tests() []suite.Test {
	return []suite.Test{healing(), scaling()}
}

// Unanswered are the questions of the level that no test asks yet, since the operator cannot do these things. They keep
// the ClusterServiceVersion from claiming the level.
func Unanswered() []string {
	return []string{
		"Does an elastic TrainingJob shrink and grow by itself with the capacity that the cluster has?",
		"Is a worker that hangs noticed and replaced?",
	}
}
