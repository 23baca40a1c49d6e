package process

import (
	"slices"

	"github.com/prometheus/procfs"
)

// MarkVariable is the environment variable that every started process carries; its value is the state
// folder of the cluster. Children inherit it, so that processes can be found which were started just
// before a crash and never recorded, and those that a recorded process left behind (container shims).
const MarkVariable = "LOCALCLUSTER_OWNED_BY"

// Marked returns all running processes that carry MarkVariable with the value owner. Processes whose
// environment may not be read are left out: they are another user's, and so not ours.
func Marked(owner string) []Identity {
	processes, _ := procfs.AllProcs()
	var found []Identity
	for _, process := range processes {
		environment, err := process.Environ()
		if err != nil || !slices.Contains(environment, MarkVariable+"="+owner) {
			continue
		}
		if id, err := Identify(process.PID); err == nil {
			found = append(found, id)
		}
	}
	return found
}
