package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// MarkVariable is the environment variable that every started process carries; its value is the state
// folder of the cluster. Children inherit it, so that processes can be found which were started just
// before a crash and never recorded, and those that a recorded process left behind (container shims).
const MarkVariable = "LOCALCLUSTER_OWNED_BY"

// Marked returns all running processes that carry MarkVariable with the value owner. Processes whose
// environment may not be read are left out: they are another user's, and so not ours.
func Marked(owner string) []Identity {
	entries, err := os.ReadDir(procRoot)
	if err != nil {
		return nil
	}
	want := []byte(MarkVariable + "=" + owner)
	var found []Identity
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(procRoot, entry.Name(), "environ"))
		if err != nil || !hasVariable(environ, want) {
			continue
		}
		if id, err := Identify(pid); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// hasVariable reports whether the NUL-separated environment holds exactly the assignment want.
func hasVariable(environ, want []byte) bool {
	for _, assignment := range bytes.Split(environ, []byte{0}) {
		if bytes.Equal(assignment, want) {
			return true
		}
	}
	return false
}
