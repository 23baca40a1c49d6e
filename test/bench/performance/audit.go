package performance

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/stretchr/testify/require"
)

// write is a kind of request that changes something.
type write struct {
	resource string
	verb     string
}

func writeTo(resource, subresource, verb string) write {
	if subresource != "" {
		resource += "/" + subresource
	}
	return write{resource, verb}
}

// audited counts, from the audit log, the requests by which the manager changed something in the namespace. Events are left
// out. Requests that the API server refused are counted too; refused is their number. The log is read from the offset
// on; end is where it ended.
func (c *cluster) audited(offset int64) (count map[write]int, refused int, end int64) {
	file, err := os.Open(c.auditLog())
	require.NoError(c, err)
	defer file.Close()
	_, err = file.Seek(offset, 0)
	require.NoError(c, err)
	count, end = map[write]int{}, offset
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // a line without an end is still being written
			return count, refused, end
		}
		end += int64(len(line))
		var entry struct {
			Stage, Verb    string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Namespace string }
			ResponseStatus struct{ Code int }
		}
		require.NoError(c, json.Unmarshal(line, &entry))
		object := entry.ObjectRef
		if entry.Stage != "ResponseComplete" || entry.User.Username != managerUser || object.Namespace != namespace || object.Resource == "events" {
			continue
		}
		count[writeTo(object.Resource, object.Subresource, entry.Verb)]++
		if entry.ResponseStatus.Code >= 300 {
			refused++
		}
	}
}

func sum(count map[write]int) int {
	all := 0
	for _, n := range count {
		all += n
	}
	return all
}
