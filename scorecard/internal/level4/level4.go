// Package level4 asks the questions of capability level 4, Deep Insights.
package level4

import "github.com/dcnlab/spot-training-operator/scorecard/internal/suite"

// Suite is the label of these tests.
const Suite = "level4"

// Tests returns the tests of the level.
func Tests() []suite.Test {
	return []suite.Test{metrics(), events(), alerts()}
}
