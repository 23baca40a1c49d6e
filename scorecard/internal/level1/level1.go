// Package level1 asks the questions of capability level 1, Basic Install.
package level1

import "github.com/dcnlab/spot-training-operator/scorecard/internal/suite"

// Suite is the label of these tests.
const Suite = "level1"

// Tests returns the tests of the level.
func Tests() []suite.Test {
	return []suite.Test{operatorReady(), kindsServed(), statusFollowsSpec(), badInputRejected()}
}
