package v1alpha1

import "slices"

// gangVariables are those by which the members of a gang find each other.
var gangVariables = []string{"RANK", "JOB_COMPLETION_INDEX", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}

// IgnoredVariables are the names in env that have no effect, in their order there, because the operator sets these variables for the members of a gang.
func IgnoredVariables(spec *AIJobSpec) []string {
	if spec.Gang.Enabled == nil || !*spec.Gang.Enabled {
		return nil
	}
	var names []string
	for i := range spec.Env {
		if name := spec.Env[i].Name; slices.Contains(gangVariables, name) {
			names = append(names, name)
		}
	}
	return names
}
