package v1alpha1

import (
	"slices"

	"k8s.io/utils/ptr"
)

// gangVariables are those by which the members of a gang find each other.
var gangVariables = []string{"RANK", "JOB_COMPLETION_INDEX", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}

// IgnoredVariables are the names in env that have no effect, in their order there, because the operator sets these variables for the members of a gang.
func IgnoredVariables(spec *AIJobSpec) []string {
	var names []string
	if ptr.Deref(spec.Gang.Enabled, false) {
		for i := range spec.Env {
			if name := spec.Env[i].Name; slices.Contains(gangVariables, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
