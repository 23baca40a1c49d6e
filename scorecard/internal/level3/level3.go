// Package level3 asks the questions of capability level 3, Full Lifecycle: backup and restore, which for training means
// checkpoints.
package level3

import "github.com/dcnlab/spot-training-operator/scorecard/internal/suite"

// Suite is the label of these tests.
const Suite = "level3"

// Tests returns the tests of the level.
func Tests() []suite.Test {
	return []suite.Test{suspendResume(), deleteRestore()}
}
