// Package level2 asks the questions of capability level 2, Seamless Upgrades.
package level2

import "github.com/dcnlab/spot-training-operator/scorecard/internal/suite"

// Suite is the label of these tests.
const Suite = "level2"

// Tests returns the tests of the level.
func Tests() []suite.Test {
	return []suite.Test{upgradePath(), upgradeable(), storedVersions(), imagePinned()}
}
